// The file of one communicator and rank: a trace that is whole after every write.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/nccl/abi.h"

namespace weft::nccl_plugin {

struct CommunicatorName {
  std::uint64_t id = 0;
  std::string name;  // as the program set it; may be empty
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::int32_t nodes = 0;
  std::int32_t number = 0;   // of the process's communicators, from 0
  std::int32_t process = 0;  // `pid` of its events: the rank in the world where that is known
  std::string pattern;       // of the path
};

// The pattern with %r (rank in the world) and %c (the communicator: 16 hexadecimal digits)
// replaced. What it lacks of the two goes before its extension, since files of different ones must
// differ.
std::string ProfilePath(const std::string& pattern, std::int32_t rank, std::uint64_t communicator);

// Not thread-safe.
class ProfileFile {
 public:
  explicit ProfileFile(CommunicatorName name) : name_(std::move(name)) {}

  const CommunicatorName& name() const { return name_; }
  // Of the world; negative: not known. No effect once the file is there.
  void set_rank(std::int32_t rank) {
    if (rank >= 0 && path_.empty()) name_.process = rank;
  }

  // Appends `events` (JSON objects, each followed by ",\n") and replaces the end, which is
  // `summary`, one JSON object. Tells `log` of the first failure and does nothing from then on.
  void Write(const std::string& events, const std::string& summary, Logger log);

 private:
  CommunicatorName name_;
  std::string path_;
  long end_ = 0;  // of the events written
  bool failed_ = false;
};

}  // namespace weft::nccl_plugin
