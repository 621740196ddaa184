// What the tool of the tests has been told, shared between it (a library that NVTX loads) and them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {

struct NvtxEvent {
  enum class What { kPush, kPop, kStart, kEnd };
  What what;
  pid_t thread;
  std::string domain;
  std::uint64_t range = 0;  // kStart, kEnd
  // Of a beginning:
  std::string category;
  std::string message;
  // The payload, a schema's by its entries' names; a single number's name is "".
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::string> texts;
};

struct NvtxRecord {
  std::mutex mutex;
  std::vector<NvtxEvent> events;
  std::multimap<std::string, std::string> strings;           // registered: domain, text
  std::vector<std::pair<std::string, std::string>> threads;  // name, and what the kernel has
  std::vector<std::string> schemas;
  std::vector<std::string> faults;  // what a tool may not be told like this

  std::vector<NvtxEvent> Events(std::size_t first = 0) {
    const std::lock_guard<std::mutex> lock(mutex);
    return {events.begin() + static_cast<std::ptrdiff_t>(first), events.end()};
  }
};

// Exported by the library.
inline constexpr char kNvtxRecordFunction[] = "WeftTestsNvtxRecord";
using NvtxRecordFunction = NvtxRecord* (*)();

}  // namespace weft::testing
