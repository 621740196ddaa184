// What NCCL is known to do wrong towards profilers, and what may happen when it is torn down.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/plugins/profile_script.h"

namespace weft::testing {
namespace {

using nlohmann::json;

class ProfilerFaultsTest : public ::testing::Test {
 protected:
  Profile Only() {
    const std::vector<std::string> files = folder_.Files();
    EXPECT_EQ(files.size(), 1u);
    return Profile(files.at(0));
  }

  PluginLibrary library_{"profiler", "weft"};
  const nccl_plugin::ProfilerV5& v5_ = library_.Find<nccl_plugin::ProfilerV5>("ncclProfiler_v5");
  const nccl_plugin::ProfilerV4& v4_ = library_.Find<nccl_plugin::ProfilerV4>("ncclProfiler_v4");
  ProfileFolder folder_;
};

TEST_F(ProfilerFaultsTest, NullIsAnsweredWithSuccessAndNoEvent) {
  nccl_plugin::DescriptorV5 d5 = {.type = nccl_plugin::kBitCollApi};
  nccl_plugin::DescriptorV4 d4 = {.type = nccl_plugin::kBitColl};
  void* handle = &d5;
  EXPECT_EQ(v5_.start_event(nullptr, &handle, &d5), 0);
  EXPECT_EQ(handle, nullptr) << "NCCL's slot held an old pointer";
  handle = &d5;
  EXPECT_EQ(v4_.start_event(nullptr, &handle, &d4), 0);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(v5_.start_event(nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(v5_.stop_event(nullptr), 0);
  EXPECT_EQ(v5_.record_state(nullptr, nccl_plugin::kKernelChStop, nullptr), 0);
  EXPECT_EQ(v5_.finalize(nullptr), 0);
  EXPECT_EQ(v5_.init(nullptr, 0, nullptr, nullptr, 0, 0, 0, nullptr), 0);
  EXPECT_EQ(v4_.init(nullptr, nullptr, nullptr, 0, 0, 0, 0, nullptr), 0);
  void* context = nullptr;
  EXPECT_EQ(v5_.init(&context, 1, nullptr, nullptr, 1, 1, 0, nullptr), 0);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(v5_.start_event(context, &handle, nullptr), 0);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(v5_.finalize(context), 0);
}

TEST_F(ProfilerFaultsTest, UnknownKindsAndStatesAreNoEvents) {
  Script comm(library_);
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t type = std::uint64_t{1} << bit;
    void* const event = comm.Start({.type = type, .size = {}});
    const bool ours =
        (type & static_cast<unsigned>(comm.mask())) != 0 && type != nccl_plugin::kBitProxyOp;
    EXPECT_EQ(event != nullptr, ours) << bit;  // the proxy operation has pid 0
    for (int state = -1; state < 40; ++state) comm.State(event, state, 1);
    comm.Stop(event);
  }
  EXPECT_EQ(comm.Start({.type = 0}), nullptr);
  EXPECT_EQ(comm.Start({.type = ~std::uint64_t{0}}), nullptr);
  comm.Finalize();
  EXPECT_EQ(Only().Counter("unfinished"), 0);
}

TEST_F(ProfilerFaultsTest, UnbalancedStartsAndStopsAreCountedAndWritten) {
  Script comm(library_);
  const Working working(1, 2, 3, "w");
  void* const call = comm.Call(nullptr);
  void* const task = comm.Task(call);
  comm.Stop(task);
  comm.Stop(task);
  void* const kernel = comm.Kernel(task, 0, 5);
  comm.StopKernel(kernel, 10);
  comm.StopKernel(kernel, 10);
  comm.State(kernel, nccl_plugin::kKernelChStop, 11);
  comm.Kernel(task, 1, 5);  // never stopped
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("repeated_stops"), 2);
  EXPECT_EQ(profile.Counter("unfinished"), 3) << "the kernel, its task, and the call";
  int unfinished = 0;
  for (const char* phase : {"X", "b"}) {
    for (const json& event : profile.Events(phase))
      unfinished += event["args"].contains("unfinished");
  }
  EXPECT_EQ(unfinished, 3);
  EXPECT_EQ(profile.Events("e").size(), profile.Events("b").size());
}

TEST_F(ProfilerFaultsTest, ParentsMayStopBeforeTheirChildrenStart) {
  Script comm(library_);
  const Working working(1, 2, 3, "late");
  void* const group = comm.Group();
  void* const call = comm.Call(group);
  comm.Stop(call);
  comm.Stop(group);
  weft_nccl_profile_flush();
  comm.Stop(comm.Call(nullptr));  // flushes: the first call has no task yet and must stay
  void* const task = comm.Task(call);
  comm.Stop(task);
  weft_nccl_profile_flush();
  comm.Stop(comm.Call(nullptr));  // flushes: the task has no kernels yet and must stay
  for (int channel : {0, 1}) comm.StopKernel(comm.Kernel(task, channel, 7), 9);
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("stale"), 0);
  EXPECT_EQ(profile.Counter("unfinished"), 0);
  EXPECT_EQ(profile.Events("b", "Reduce late").size(), 1u);
  EXPECT_EQ(profile.Events("b", "Reduce late")[0]["args"]["completion"], "kernel");
  EXPECT_EQ(profile.Events("X", "kernel late").size(), 2u);
}

TEST_F(ProfilerFaultsTest, ALateTaskThatNeverEndsKeepsWhatIsAboveItUnfinished) {
  Script comm(library_);
  void* const group = comm.Group();
  void* const call = comm.Call(group);
  comm.Stop(call);
  comm.Stop(group);
  comm.Task(call);
  comm.Finalize();
  EXPECT_EQ(Only().Counter("unfinished"), 3);
}

TEST_F(ProfilerFaultsTest, ProxyOperationsOfOtherProcessesAreIgnored) {
  Script comm(library_);
  void* const task = comm.Task(comm.Call(nullptr));
  EXPECT_EQ(comm.ProxyOp(task, 0, 1, ::getpid() + 1), nullptr);
  EXPECT_EQ(comm.ProxyOp(&comm, 0, 1, ::getpid() + 1), nullptr) << "its parent is of that process";
  comm.Stop(comm.ProxyOp(task, 0, 1));
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("foreign"), 2);
  EXPECT_EQ(profile.Events("b", "send").size(), 1u);
}

TEST_F(ProfilerFaultsTest, ParentsThatAreNoEventsLeaveTheChildWithoutAJob) {
  Script comm(library_), other(library_, {.id = 2});
  const Working working(1, 2, 3, "w");
  void* const elsewhere = other.Task(other.Call(nullptr));
  comm.Stop(comm.Task(comm.Call(nullptr)));  // in the same places as those of the other
  comm.StopKernel(comm.Kernel(elsewhere, 0, 1), 2);
  comm.StopKernel(comm.Kernel(&comm, 0, 1), 2);
  comm.StopKernel(comm.Kernel(reinterpret_cast<void*>(~std::uintptr_t{0}), 0, 1), 2);
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("stale"), 3);
  ASSERT_EQ(profile.Events("X", "kernel").size(), 3u);
  for (const json& kernel : profile.Events("X", "kernel")) {
    EXPECT_TRUE(kernel["args"].contains("unattributed"));
  }
}

TEST_F(ProfilerFaultsTest, AFullPoolDropsAndCountsAndRecoversWithAFlush) {
  const Variable few("WEFT_NCCL_PROFILE_EVENTS", "6");
  Script comm(library_);
  const Working working(1, 2, 3, "w");
  comm.Whole();  // fills it
  void* const call = comm.Call(nullptr);
  EXPECT_EQ(call, nullptr);
  EXPECT_EQ(comm.Task(call), nullptr);
  EXPECT_EQ(comm.Kernel(nullptr, 0, 1), nullptr);
  comm.Stop(call);
  weft_nccl_profile_flush();
  comm.Whole();
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("dropped"), 3);
  EXPECT_EQ(profile.Counter("events"), 12);
  EXPECT_EQ(profile.Counter("unfinished"), 0);
}

TEST_F(ProfilerFaultsTest, WhatWaitsForADroppedChildDoesNotWaitForEver) {
  const Variable few("WEFT_NCCL_PROFILE_EVENTS", "4");
  Script comm(library_);
  void* const group = comm.Group();
  void* const call = comm.Call(group);
  void* const task = comm.Task(call);
  void* const kernel = comm.Kernel(task, 0, 1);
  EXPECT_EQ(comm.Kernel(task, 1, 1), nullptr);
  comm.StopKernel(kernel, 2);
  for (void* const event : {task, call, group}) comm.Stop(event);
  weft_nccl_profile_flush();
  EXPECT_NE(comm.Group(), nullptr) << "all four have made room";
  EXPECT_EQ(Only().Events("b").size(), 1u);
}

// A task whose call was dropped must not take the job that the thread works for by then.
TEST_F(ProfilerFaultsTest, ATaskWithoutACallIsNotGuessedAt) {
  Script comm(library_);
  const Working working(1, 2, 3, "not mine");
  comm.Stop(comm.Task(nullptr));
  comm.Finalize();
  EXPECT_TRUE(Only().Events("b")[0]["args"].contains("unattributed"));
}

TEST_F(ProfilerFaultsTest, HandlesOfAnEndedCommunicatorDoNothing) {
  Script first(library_, {.id = 1});
  void* const context = first.context();
  void* const call = first.Call(nullptr);
  void* const task = first.Task(call);
  first.Finalize();
  Script second(library_, {.id = 2});  // takes the place of the first
  EXPECT_NE(second.context(), context);
  void* const same_place = second.Call(nullptr);
  second.Stop(call);
  second.Stop(task);
  second.State(task, nccl_plugin::kKernelChStop, 1);
  void* handle = &handle;
  nccl_plugin::DescriptorV5 descriptor = {.type = nccl_plugin::kBitCollApi};
  EXPECT_EQ(v5_.start_event(context, &handle, &descriptor), 0);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(v5_.finalize(context), 0);
  second.Stop(same_place);
  second.Finalize();
  const Profile profile(folder_.Files().at(1));
  EXPECT_EQ(profile.Counter("events"), 1);
  EXPECT_EQ(profile.Counter("unfinished"), 0) << "its own stop counted, the first one's did not";
  EXPECT_EQ(profile.Counter("repeated_stops"), 0);
}

// The same place of the pool used again is not the event that was there before.
TEST_F(ProfilerFaultsTest, HandlesOfFlushedEventsAreStale) {
  Script comm(library_);
  void* const call = comm.Call(nullptr);
  void* const task = comm.Task(call, {.channels = 1});
  comm.Stop(task);
  comm.Stop(call);
  void* const kernel = comm.Kernel(task, 0, 1);
  comm.StopKernel(kernel, 2);
  weft_nccl_profile_flush();
  void* const group = comm.Group();
  std::map<void*, int> known = {{call, 0}, {task, 0}, {kernel, 0}};
  EXPECT_FALSE(known.contains(group));
  for (void* const event : {call, task, kernel}) comm.Stop(event);
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("stale"), 3);
  EXPECT_EQ(profile.Counter("unfinished"), 1) << "the group, which nobody stopped";
}

TEST_F(ProfilerFaultsTest, TooManyCommunicatorsGoWithoutAProfile) {
  const Variable few("WEFT_NCCL_PROFILE_EVENTS", "1");
  std::vector<void*> contexts;
  for (std::uint64_t id = 0; id < 256; ++id) {
    void* context = nullptr;
    ASSERT_EQ(v5_.init(&context, id, nullptr, nullptr, 1, 1, 0, nullptr), 0);
    ASSERT_NE(context, nullptr);
    contexts.push_back(context);
  }
  Script comm(library_);
  EXPECT_EQ(comm.context(), nullptr);
  EXPECT_EQ(comm.mask(), 0);
  EXPECT_EQ(comm.Group(), nullptr);
  for (void* const context : contexts) EXPECT_EQ(v5_.finalize(context), 0);
  EXPECT_EQ(folder_.Files().size(), 256u);
}

TEST_F(ProfilerFaultsTest, AFileThatCannotBeWrittenIsToldOnce) {
  const Variable nowhere("WEFT_NCCL_PROFILE", "/nowhere/%r-%c.json");
  Script comm(library_);
  for (int i = 0; i < 3; ++i) {
    comm.Whole();
    weft_nccl_profile_flush();
  }
  comm.Finalize();
  const std::vector<std::string> warnings = TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], ::testing::HasSubstr("/nowhere/1-0000000000c0ffee.json"));
}

TEST_F(ProfilerFaultsTest, OptionsThatAreNotUnderstoodAreToldAndDefaultsHold) {
  const Variable events("WEFT_NCCL_PROFILE_EVENTS", "1e6"),
      kinds("WEFT_NCCL_PROFILE_KINDS", "most");
  Script comm(library_);
  EXPECT_NE(comm.mask() & nccl_plugin::kBitKernelCh, 0);
  EXPECT_EQ(TakeWarnings().size(), 2u);
}

}  // namespace
}  // namespace weft::testing
