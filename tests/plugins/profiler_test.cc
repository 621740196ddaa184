// What the profiler writes of what NCCL does when all goes well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tests/plugins/profile_script.h"

namespace weft::testing {
namespace {

using nlohmann::json;

class ProfilerTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(TakeWarnings(), ::testing::IsEmpty()); }

  // Of the only file there is.
  Profile Only() {
    const std::vector<std::string> files = folder_.Files();
    EXPECT_EQ(files.size(), 1u);
    return Profile(files.at(0));
  }

  PluginLibrary library_{"profiler", "weft"};
  ProfileFolder folder_;
};

// Every event of the file that has arguments works for this.
void ExpectAllFor(const Profile& profile, int step, int op, const std::string& matrix) {
  int seen = 0;
  for (const char* phase : {"X", "b"}) {
    for (const json& event : profile.Events(phase)) {
      EXPECT_EQ(event["args"].value("step", -1), step) << event;
      EXPECT_EQ(event["args"].value("op", -1), op) << event;
      EXPECT_EQ(event["args"].value("matrix", ""), matrix) << event;
      EXPECT_FALSE(event["args"].contains("unfinished")) << event;
      ++seen;
    }
  }
  EXPECT_GT(seen, 0);
}

TEST_F(ProfilerTest, AttributesEverythingOfACallToItsJob) {
  Script comm(library_);
  {
    const Working working(12, 34, 56, "blk.0.wq");
    comm.Whole({.function = "Reduce", .count = 1000, .datatype = "ncclFloat32", .root = 3});
  }
  comm.Finalize();
  const Profile profile = Only();
  ExpectAllFor(profile, 12, 34, "blk.0.wq");
  EXPECT_EQ(profile.Counter("events"), 6);
  for (const char* counter : {"dropped", "unattributed", "stale", "repeated_stops", "unfinished"}) {
    EXPECT_EQ(profile.Counter(counter), 0) << counter;
  }
  ASSERT_EQ(profile.Events("b").size(), 1u);
  const json task = profile.Events("b")[0];
  EXPECT_EQ(task["name"], "Reduce blk.0.wq");
  EXPECT_EQ(task["pid"], 5) << "the rank in the world, which the context says";
  EXPECT_EQ(task["args"]["bytes"], 4000);
  EXPECT_EQ(task["args"]["root"], 3);
  EXPECT_EQ(task["args"]["protocol"], "SIMPLE");
  EXPECT_EQ(task["args"]["algorithm"], "RING");
  EXPECT_EQ(task["args"]["channels"], 2);
  EXPECT_EQ(task["args"]["matrix_index"], 56);
  EXPECT_EQ(task["args"]["completion"], "kernel");
  EXPECT_EQ(profile.Events("X", "call Reduce").size(), 1u);
  EXPECT_EQ(profile.Events("X", "group").size(), 1u);
  EXPECT_EQ(profile.Events("X", "launch").size(), 1u);
}

TEST_F(ProfilerTest, ATaskEndsWithItsLastKernelNotWhenItIsEnqueued) {
  Script comm(library_);
  void* const call = comm.Call(nullptr);
  void* const task = comm.Task(call);
  comm.Stop(task);
  comm.Stop(call);
  void *const first = comm.Kernel(task, 0, 1000), *second = comm.Kernel(task, 1, 1000);
  comm.StopKernel(first, 2000);
  comm.StopKernel(second, 2000);
  comm.Finalize();
  const Profile profile = Only();
  ASSERT_EQ(profile.Events("e").size(), 1u);
  const json task_end = profile.Events("e")[0];
  for (const json& kernel : profile.Events("X", "kernel")) {
    EXPECT_GE(task_end["ts"], kernel["ts"]) << "a task ends before one of its kernels begins";
  }
  const json call_slice = profile.Events("X", "call")[0];
  EXPECT_GT(task_end["ts"].get<double>(),
            call_slice["ts"].get<double>() + call_slice["dur"].get<double>());
}

TEST_F(ProfilerTest, KernelsLastAsLongAsTheGpuSaysAndDoNotOverlap) {
  Script comm(library_);
  void* const task = comm.Task(comm.Call(nullptr));
  std::vector<void*> kernels;
  for (int i = 0; i < 5; ++i) kernels.push_back(comm.Kernel(task, 3, 1000000 + 5000000 * i));
  for (int i = 0; i < 5; ++i) comm.StopKernel(kernels[i], 5000000 + 5000000 * i);
  comm.StopKernel(comm.Kernel(task, 4, 0), 0);  // no GPU times
  comm.Finalize();
  double end = 0;
  int timed = 0;
  for (const json& kernel : Only().Events("X", "kernel")) {
    if (kernel["args"]["channel"] == 4) {
      EXPECT_FALSE(kernel["args"].contains("gpu_begin_ns"));
      continue;
    }
    ++timed;
    EXPECT_EQ(kernel["dur"], 4000.0);
    EXPECT_EQ(kernel["args"]["gpu_end_ns"].get<std::int64_t>() -
                  kernel["args"]["gpu_begin_ns"].get<std::int64_t>(),
              4000000);
    EXPECT_GE(kernel["ts"].get<double>(), end);
    end = kernel["ts"].get<double>() + kernel["dur"].get<double>();
  }
  EXPECT_EQ(timed, 5);
}

TEST_F(ProfilerTest, CallsOfOneGroupKeepTheirJobsApart) {
  Script comm(library_);
  void* const group = comm.Group();
  std::vector<void*> calls;
  for (int op = 0; op < 3; ++op) {
    const Working working(1, op, op, op == 0 ? "a" : op == 1 ? "b" : "c");
    calls.push_back(comm.Call(group, {.function = "Broadcast", .channels = 1}));
    comm.Stop(calls.back());
  }
  const Working last(1, 2, 2, "c");  // what the thread works for when the group ends
  comm.Stop(comm.Launch(group));
  for (void* const call : calls) {
    void* const task = comm.Task(call, {.function = "Broadcast", .channels = 1});
    comm.Stop(task);
    comm.StopKernel(comm.Kernel(task, 0, 10), 20);
  }
  comm.Stop(group);
  comm.Finalize();
  const Profile profile = Only();
  std::multiset<std::string> tasks, kernels;
  for (const json& event : profile.Events("b")) tasks.insert(event["name"]);
  for (const json& event : profile.Events("X", "kernel")) kernels.insert(event["name"]);
  EXPECT_EQ(tasks, (std::multiset<std::string>{"Broadcast a", "Broadcast b", "Broadcast c"}));
  EXPECT_EQ(kernels, (std::multiset<std::string>{"kernel a", "kernel b", "kernel c"}));
  EXPECT_TRUE(profile.Events("X", "group")[0]["args"].contains("unattributed"));
  EXPECT_TRUE(profile.Events("X", "launch")[0]["args"].contains("unattributed"));
}

TEST_F(ProfilerTest, ReplaysOnAForeignThreadKeepTheJobOfTheCapture) {
  Script comm(library_);
  void *group = nullptr, *call = nullptr;
  {
    const Working working(3, 8, 1, "captured");
    group = comm.Group(true);
    call = comm.Call(group, {}, true);
    comm.Stop(call);
    comm.Stop(group);
  }
  for (int replay = 0; replay < 3; ++replay) {
    weft_nccl_profile_flush();
    std::thread callback([&] {
      const Working other(99, 99, 99, "something else");  // a thread that CUDA reuses
      void* const task = comm.Task(call);
      comm.Stop(task);
      for (int channel : {0, 1}) comm.StopKernel(comm.Kernel(task, channel, 100), 200);
    });
    callback.join();
    comm.Stop(call);  // NCCL does not forget the handle
  }
  comm.Finalize();
  const Profile profile = Only();
  ExpectAllFor(profile, 3, 8, "captured");
  const std::vector<json> tasks = profile.Events("b");
  ASSERT_EQ(tasks.size(), 3u);
  std::set<int> replays;
  for (const json& task : tasks) replays.insert(task["args"].value("replay", 0));
  EXPECT_EQ(replays, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(profile.Counter("repeated_stops"), 3);
  EXPECT_EQ(profile.Counter("stale"), 0);
  EXPECT_EQ(profile.Counter("unfinished"), 0);
}

TEST_F(ProfilerTest, ProxyOperationsHangBelowTheirTask) {
  Script comm(library_);
  {
    const Working working(2, 4, 6, "w");
    void* const call = comm.Call(nullptr);
    void* const task = comm.Task(call);
    comm.Stop(task);
    comm.Stop(call);
    void* const proxy = comm.ProxyOp(task, 1, 3);
    comm.State(proxy, nccl_plugin::kProxyOpInProgress);
    comm.Stop(proxy);
  }
  comm.Finalize();
  const Profile profile = Only();
  ExpectAllFor(profile, 2, 4, "w");
  ASSERT_EQ(profile.Events("b", "send to 3").size(), 1u);
  const json arguments = profile.Events("b", "send to 3")[0]["args"];
  EXPECT_EQ(arguments["channel"], 1);
  EXPECT_EQ(arguments["chunk_bytes"], 524288);
  EXPECT_TRUE(arguments.contains("waited_us"));
  EXPECT_EQ(profile.Events("b", "Reduce w")[0]["args"]["completion"], "proxy");
}

TEST_F(ProfilerTest, WithoutAContextNothingIsClaimed) {
  Script comm(library_, {.rank = 2});
  comm.Whole();
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("unattributed"), 2) << "the call and its task";
  for (const char* phase : {"X", "b"}) {
    for (const json& event : profile.Events(phase)) {
      EXPECT_TRUE(event["args"].contains("unattributed")) << event;
      EXPECT_FALSE(event["args"].contains("step")) << event;
      EXPECT_EQ(event["pid"], 2) << "the only rank that is known";
    }
  }
}

TEST_F(ProfilerTest, Version4TakesTheContextOfTheTask) {
  const auto& v4 = library_.Find<nccl_plugin::ProfilerV4>("ncclProfiler_v4");
  void* context = nullptr;
  int mask = 0;
  ASSERT_EQ(v4.init(&context, &mask, "intra", 77, 1, 2, 0, &Log), 0);
  EXPECT_EQ(mask, nccl_plugin::kBitColl | nccl_plugin::kBitP2p | nccl_plugin::kBitProxyOp |
                      nccl_plugin::kBitKernelCh);
  const Working working(9, 8, 7, "v4");
  nccl_plugin::DescriptorV4 group = {.type = nccl_plugin::kBitGroup};
  void* handle = &group;
  ASSERT_EQ(v4.start_event(context, &handle, &group), 0);
  EXPECT_EQ(handle, nullptr) << "groups of that version say nothing";
  nccl_plugin::CollFields fields = {};
  fields.function = "AllGather";
  fields.count = 64;
  fields.datatype = "ncclInt8";
  fields.channels = 1;
  nccl_plugin::DescriptorV4 task = {.type = nccl_plugin::kBitColl, .coll = fields};
  ASSERT_EQ(v4.start_event(context, &handle, &task), 0);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(v4.stop_event(handle), 0);
  nccl_plugin::DescriptorV4 kernel = {
      .type = nccl_plugin::kBitKernelCh, .parent = handle, .kernel_ch = {0, 100}};
  void* kernel_handle = nullptr;
  ASSERT_EQ(v4.start_event(context, &kernel_handle, &kernel), 0);
  nccl_plugin::StateArguments arguments = {};
  arguments.gpu_ns = 5100;
  EXPECT_EQ(v4.record_state(kernel_handle, nccl_plugin::kKernelChStop, &arguments), 0);
  EXPECT_EQ(v4.stop_event(kernel_handle), 0);
  EXPECT_EQ(v4.finalize(context), 0);
  const Profile profile = Only();
  ExpectAllFor(profile, 9, 8, "v4");
  EXPECT_EQ(profile.Events("X", "kernel")[0]["dur"], 5.0);
  EXPECT_EQ(profile.Events("b", "AllGather v4")[0]["args"]["bytes"], 64);
}

TEST_F(ProfilerTest, AFlushWritesWhatIsCompleteAndTheFileIsAlwaysWhole) {
  const Variable few("WEFT_NCCL_PROFILE_EVENTS", "8");
  Script comm(library_);
  const Working working(1, 1, 1, "m");
  for (int step = 0; step < 10; ++step) {  // 6 events each, in room for 8
    comm.Whole();
    weft_nccl_profile_flush();
    if (step == 0) {
      EXPECT_TRUE(folder_.Files().empty()) << "a flush waits for the next event";
      continue;
    }
    EXPECT_EQ(Only().Events("b").size(), static_cast<std::size_t>(step));
  }
  comm.Finalize();
  const Profile profile = Only();
  EXPECT_EQ(profile.Counter("events"), 60);
  EXPECT_EQ(profile.Counter("dropped"), 0);
  EXPECT_EQ(profile.Events("b").size(), 10u);
  EXPECT_EQ(profile.Events("M", "weft_nccl_end").size(), 1u);
  ExpectAllFor(profile, 1, 1, "m");
}

TEST_F(ProfilerTest, NamesThatNeedQuotingStillParse) {
  Script comm(library_, {.name = "a \"b\" \\ \n"});
  const Working working(1, 1, 1, "m\t\xff\xc3\xa4\"\\");
  comm.Whole();
  comm.Finalize();
  EXPECT_EQ(Only().Events("b")[0]["args"]["matrix"], "m\t?\xc3\xa4\"\\");
}

TEST_F(ProfilerTest, EveryCommunicatorAndRankHasItsFileAndTracks) {
  Script a(library_, {.id = 1, .rank = 0}), b(library_, {.id = 2, .rank = 0});
  Script c(library_, {.id = 1, .rank = 1});
  for (Script* const comm : {&a, &b, &c}) comm->Whole();
  for (Script* const comm : {&a, &b, &c}) comm->Finalize();
  ASSERT_EQ(folder_.Files().size(), 3u);
  std::set<int> tracks;
  for (const std::string& file : folder_.Files()) {
    tracks.insert(Profile(file).Events("X", "call")[0]["tid"].get<int>());
  }
  EXPECT_EQ(tracks.size(), 3u);
  EXPECT_GE(*tracks.begin(), 1000) << "smaller ones are Weft's lanes";
}

TEST_F(ProfilerTest, IsOffUnlessAsked) {
  const Variable unset("WEFT_NCCL_PROFILE", "");
  Script comm(library_);
  EXPECT_EQ(comm.context(), nullptr);
  EXPECT_EQ(comm.mask(), 0);
  EXPECT_EQ(comm.Group(), nullptr);
}

TEST_F(ProfilerTest, KindsAreLeftOutWhenAsked) {
  const Variable kinds("WEFT_NCCL_PROFILE_KINDS", "calls");
  Script comm(library_);
  EXPECT_EQ(comm.mask() & (nccl_plugin::kBitKernelCh | nccl_plugin::kBitProxyOp), 0);
  EXPECT_NE(comm.mask() & nccl_plugin::kBitCollApi, 0);
  void* const call = comm.Call(nullptr);
  comm.Stop(comm.Task(call));
  comm.Stop(call);
  weft_nccl_profile_flush();
  comm.Stop(comm.Call(nullptr));
  EXPECT_EQ(Only().Events("b")[0]["args"]["completion"], "enqueue");
}

}  // namespace
}  // namespace weft::testing
