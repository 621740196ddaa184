// Plays NCCL's part towards the profiler, callback by callback, and reads what it wrote.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plugins/nccl/context.h"
#include "plugins/nccl/profiler_abi.h"
#include "tests/plugins/library.h"

namespace weft::testing {

struct Collective {
  const char* function = "Reduce";
  std::size_t count = 1024;
  const char* datatype = "ncclBfloat16";
  int root = 1;
  std::uint8_t channels = 2;
};

struct CommunicatorFacts {
  std::uint64_t id = 0xc0ffee;
  const char* name = "owner-inter-0";
  int nodes = 2, ranks = 4, rank = 1;
};

// One communicator of NCCL 2.28 on version 5. Thread-safe as far as the plug-in is. Every call
// checks that the plug-in answered with success.
class Script {
 public:
  explicit Script(const PluginLibrary& library, const CommunicatorFacts& facts = {});
  ~Script() { Finalize(); }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  void* Group(bool captured = false);
  void* Call(void* group, const Collective& what = {}, bool captured = false);
  void* Launch(void* group);
  void* Task(void* call, const Collective& what = {});
  void* Kernel(void* task, int channel, std::uint64_t gpu_ns);
  void* ProxyOp(void* task, int channel, int peer, pid_t pid = ::getpid());
  // The event that `descriptor` describes.
  void* Start(nccl_plugin::DescriptorV5 descriptor);

  void State(void* event, int state, std::uint64_t gpu_ns = 0);
  void Stop(void* event);
  void StopKernel(void* kernel, std::uint64_t gpu_ns);
  // As NCCL does, only once.
  void Finalize();

  // Group, call, launch, task, a kernel per channel, in NCCL's order, all stopped.
  void Whole(const Collective& what = {});

  void* context() const { return context_; }
  int mask() const { return mask_; }

 private:
  const nccl_plugin::ProfilerV5& profiler_;
  void* context_ = nullptr;
  int mask_ = 0;
};

// Sets this thread's context for the time of the object.
class Working {
 public:
  Working(std::int64_t step, std::int32_t op, std::int32_t matrix, const char* name,
          std::int32_t rank = 5) {
    const weft_nccl_context context = {step, rank, op, matrix, name};
    weft_nccl_context_set(&context);
  }
  ~Working() { weft_nccl_context_set(nullptr); }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
};

// A profile's file, in a folder that lasts as long.
class ProfileFolder {
 public:
  ProfileFolder();
  ~ProfileFolder();
  ProfileFolder(const ProfileFolder&) = delete;
  ProfileFolder& operator=(const ProfileFolder&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> Files() const;

 private:
  std::string path_;
  Variable variable_;
};

// A profile; the test fails if it is no JSON.
class Profile {
 public:
  explicit Profile(const std::string& path);

  std::int64_t Counter(const char* name) const { return document_["otherData"][name]; }
  // The events of a phase whose names begin so, in the order of the file.
  std::vector<nlohmann::json> Events(const std::string& phase,
                                     const std::string& prefix = "") const;
  const nlohmann::json& document() const { return document_; }

 private:
  nlohmann::json document_;
};

}  // namespace weft::testing
