#include "tests/plugins/profile_script.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

namespace weft::testing {
namespace {

using nccl_plugin::DescriptorV5;

std::string FreshFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "weft-profile-XXXXXX").string();
  return ::mkdtemp(pattern.data());
}

// What a slot of NCCL's may hold before: the plug-in must always write it.
void* Poison() { return reinterpret_cast<void*>(std::uintptr_t{0xdeadbeef}); }

}  // namespace

Script::Script(const PluginLibrary& library, const CommunicatorFacts& facts)
    : profiler_(library.Find<nccl_plugin::ProfilerV5>("ncclProfiler_v5")) {
  EXPECT_EQ(profiler_.init(&context_, facts.id, &mask_, facts.name, facts.nodes, facts.ranks,
                           facts.rank, &Log),
            0);
}

void* Script::Start(DescriptorV5 descriptor) {
  void* event = Poison();
  EXPECT_EQ(profiler_.start_event(context_, &event, &descriptor), 0);
  EXPECT_NE(event, Poison());
  return event;
}

void* Script::Group(bool captured) {
  return Start({.type = nccl_plugin::kBitGroupApi, .group_api = {captured, 1}});
}

void* Script::Call(void* group, const Collective& what, bool captured) {
  return Start(
      {.type = nccl_plugin::kBitCollApi,
       .parent = group,
       .coll_api = {what.function, what.count, what.datatype, what.root, nullptr, captured}});
}

void* Script::Launch(void* group) {
  return Start(
      {.type = nccl_plugin::kBitKernelLaunch, .parent = group, .kernel_launch = {nullptr}});
}

void* Script::Task(void* call, const Collective& what) {
  nccl_plugin::CollFields fields = {};
  fields.sequence = 7;
  fields.function = what.function;
  fields.count = what.count;
  fields.root = what.root;
  fields.datatype = what.datatype;
  fields.channels = what.channels;
  fields.warps = 9;
  fields.algorithm = "RING";
  fields.protocol = "SIMPLE";
  return Start({.type = nccl_plugin::kBitColl, .parent = call, .rank = 1, .coll = fields});
}

void* Script::Kernel(void* task, int channel, std::uint64_t gpu_ns) {
  return Start({.type = nccl_plugin::kBitKernelCh,
                .parent = task,
                .kernel_ch = {static_cast<std::uint8_t>(channel), gpu_ns}});
}

void* Script::ProxyOp(void* task, int channel, int peer, pid_t pid) {
  return Start({.type = nccl_plugin::kBitProxyOp,
                .parent = task,
                .rank = 1,
                .proxy_op = {pid, static_cast<std::uint8_t>(channel), peer, 8, 524288, 1}});
}

void Script::State(void* event, int state, std::uint64_t gpu_ns) {
  nccl_plugin::StateArguments arguments = {};
  arguments.gpu_ns = gpu_ns;
  // NCCL has arguments for kernels and proxies only.
  const bool has_arguments = state < nccl_plugin::kGroupStartApiStop;
  EXPECT_EQ(profiler_.record_state(event, state, has_arguments ? &arguments : nullptr), 0);
}

void Script::Stop(void* event) { EXPECT_EQ(profiler_.stop_event(event), 0); }

void Script::StopKernel(void* kernel, std::uint64_t gpu_ns) {
  State(kernel, nccl_plugin::kKernelChStop, gpu_ns);
  Stop(kernel);
}

void Script::Finalize() {
  if (context_ == nullptr) return;  // NCCL does not call it then
  EXPECT_EQ(profiler_.finalize(std::exchange(context_, nullptr)), 0);
}

void Script::Whole(const Collective& what) {
  void* const group = Group();
  void* const call = Call(group, what);
  Stop(call);
  State(group, nccl_plugin::kGroupStartApiStop);
  State(group, nccl_plugin::kGroupEndApiStart);
  void* const launch = Launch(group);
  Stop(launch);
  void* const task = Task(call, what);
  Stop(task);
  Stop(group);
  for (int channel = 0; channel < what.channels; ++channel) {
    StopKernel(Kernel(task, channel, 1000), 6000);
  }
}

ProfileFolder::ProfileFolder()
    : path_(FreshFolder()), variable_("WEFT_NCCL_PROFILE", path_ + "/r%r-%c.json") {}

ProfileFolder::~ProfileFolder() { std::filesystem::remove_all(path_); }

std::vector<std::string> ProfileFolder::Files() const {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

Profile::Profile(const std::string& path) {
  std::ifstream file(path);
  document_ = nlohmann::json::parse(file, nullptr, false);
  EXPECT_FALSE(document_.is_discarded()) << path << " is not JSON";
}

std::vector<nlohmann::json> Profile::Events(const std::string& phase,
                                            const std::string& prefix) const {
  std::vector<nlohmann::json> events;
  for (const nlohmann::json& event : document_["traceEvents"]) {
    const std::string name = event["name"];
    if (event["ph"] == phase && name.rfind(prefix, 0) == 0) events.push_back(event);
  }
  return events;
}

}  // namespace weft::testing
