// Callers, proxy threads and replays at once. ThreadSanitizer runs it too.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/plugins/profile_script.h"
#include "tests/support/property.h"
#include "tests/support/seed.h"

namespace weft::testing {
namespace {

using nlohmann::json;

// What callers hand to a proxy thread. An empty entry ends it.
class Queue {
 public:
  void Push(void* task) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(task);
    }
    filled_.notify_one();
  }
  void* Pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    filled_.wait(lock, [&] { return !tasks_.empty(); });
    void* const task = tasks_.front();
    tasks_.pop_front();
    return task;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<void*> tasks_;
};

constexpr int kCollectives = 200;
constexpr int kOutstanding = 100;  // kernels under way on a channel before the first of them stops

// The channel of `queue` runs every task's kernel, many of them under way at once, and a proxy
// operation.
void RunChannel(Script& comm, Queue& queue, int channel) {
  std::deque<void*> under_way;
  std::uint64_t gpu_ns = 1000;
  const auto stop_first = [&] {
    comm.StopKernel(under_way.front(), gpu_ns += 10);
    under_way.pop_front();
  };
  while (void* const task = queue.Pop()) {
    void* const proxy = comm.ProxyOp(task, channel, 1);
    under_way.push_back(comm.Kernel(task, channel, gpu_ns += 10));
    comm.State(proxy, nccl_plugin::kProxyOpInProgress);
    comm.Stop(proxy);
    if (under_way.size() > kOutstanding) stop_first();
  }
  while (!under_way.empty()) stop_first();
}

// One rank: a caller, two proxy threads; flushes come in between.
void RunRank(const PluginLibrary& library, std::uint64_t id, int rank) {
  Script comm(library, {.id = id, .rank = rank});
  Queue channels[2];
  std::vector<std::thread> proxies;
  for (int c = 0; c < 2; ++c) proxies.emplace_back([&, c] { RunChannel(comm, channels[c], c); });
  for (int op = 0; op < kCollectives; ++op) {
    const std::string name = "m" + std::to_string(op);
    const Working working(rank, op, op, name.c_str(), rank);
    void* const group = comm.Group();
    void* const call = comm.Call(group);
    comm.Stop(call);
    comm.Stop(comm.Launch(group));
    void* const task = comm.Task(call);
    for (Queue& channel : channels) channel.Push(task);
    comm.Stop(task);
    comm.Stop(group);
    if (op % 16 == 0) weft_nccl_profile_flush();
  }
  for (Queue& channel : channels) channel.Push(nullptr);
  for (std::thread& proxy : proxies) proxy.join();
}

TEST(ProfilerThreads, RanksAndProxiesAtOnceLoseNothing) {
  const PluginLibrary library("profiler", "weft");
  const ProfileFolder folder;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.emplace_back([&, rank] { RunRank(library, 9, rank); });
  for (std::thread& rank : ranks) rank.join();
  ASSERT_EQ(folder.Files().size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const Profile profile(folder.Files().at(rank));
    EXPECT_EQ(profile.Counter("events"), kCollectives * (4 + 2 * 2));
    for (const char* counter :
         {"dropped", "unattributed", "stale", "repeated_stops", "foreign", "unfinished"}) {
      EXPECT_EQ(profile.Counter(counter), 0) << counter;
    }
    std::map<int, int> kernels;  // by operation
    for (const json& kernel : profile.Events("X", "kernel")) {
      ++kernels[kernel["args"]["op"]];
      EXPECT_EQ(kernel["args"]["step"], rank);
      EXPECT_EQ(kernel["args"]["matrix"], "m" + std::to_string(kernel["args"]["op"].get<int>()));
    }
    ASSERT_EQ(kernels.size(), static_cast<std::size_t>(kCollectives));
    for (const auto& [op, count] : kernels) EXPECT_EQ(count, 2) << op;
    EXPECT_EQ(profile.Events("b", "Reduce").size(), static_cast<std::size_t>(kCollectives));
    EXPECT_EQ(profile.Events("b", "send").size(), 2u * kCollectives);
  }
}

// A communicator may end while proxy threads are still inside the profiler for it.
TEST(ProfilerThreads, ACommunicatorEndsUnderItsProxies) {
  const PluginLibrary library("profiler", "weft");
  const ProfileFolder folder;
  const auto& profiler = library.Find<nccl_plugin::ProfilerV5>("ncclProfiler_v5");
  for (int round = 0; round < 20; ++round) {
    void* context = nullptr;
    int mask = 0;
    ASSERT_EQ(profiler.init(&context, round, &mask, "c", 1, 2, 0, &Log), 0);
    std::vector<std::thread> proxies;
    for (int p = 0; p < 2; ++p) {
      proxies.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          nccl_plugin::DescriptorV5 descriptor = {.type = nccl_plugin::kBitKernelCh};
          void* handle = nullptr;
          EXPECT_EQ(profiler.start_event(context, &handle, &descriptor), 0);
          EXPECT_EQ(profiler.stop_event(handle), 0);
        }
      });
    }
    EXPECT_EQ(profiler.finalize(context), 0);
    for (std::thread& proxy : proxies) proxy.join();
  }
  for (const std::string& file : folder.Files()) {
    EXPECT_LE(Profile(file).Counter("unfinished"), 2);
  }
}

// Whatever NCCL calls in whatever order: success, a file that parses, and every start accounted
// for.
RC_GTEST_PROP(ProfilerThreads, AnySequenceOfCallbacksIsSurvived, ()) {
  const PluginLibrary library("profiler", "weft");
  const ProfileFolder folder;
  const Variable few("WEFT_NCCL_PROFILE_EVENTS", std::to_string(*rc::gen::inRange(1, 40)));
  Script comm(library);
  std::vector<void*> handles = {nullptr};
  std::int64_t accepted = 0, refused = 0;
  const auto any = [&] { return handles[*rc::gen::inRange<std::size_t>(0, handles.size())]; };
  const int actions = *rc::gen::inRange(1, 120);
  for (int i = 0; i < actions; ++i) {
    const int action = *rc::gen::inRange(0, 10);
    void* event = nullptr;
    const Working working(i, i, i, "x");
    switch (action) {
      case 0:
        event = comm.Group(*rc::gen::arbitrary<bool>());
        break;
      case 1:
        event = comm.Call(any(), {}, *rc::gen::arbitrary<bool>());
        break;
      case 2:
        event = comm.Task(any());
        break;
      case 3:
        event = comm.Kernel(any(), *rc::gen::inRange(0, 255), *rc::gen::inRange(0, 1000));
        break;
      case 4:
        event = comm.ProxyOp(any(), 0, 1);
        break;
      case 5:
        event = comm.Launch(any());
        break;
      case 6:
        comm.State(any(), *rc::gen::inRange(0, 30), *rc::gen::inRange(0, 1000));
        break;
      case 7:
        weft_nccl_profile_flush();
        break;
      default:
        comm.Stop(any());
        break;
    }
    if (action < 6) ++(event == nullptr ? refused : accepted);
    if (event != nullptr) handles.push_back(event);
  }
  comm.Finalize();
  const Profile profile(folder.Files().at(0));
  RC_ASSERT(profile.Counter("events") == accepted);
  RC_ASSERT(profile.Counter("dropped") == refused);
  const std::size_t written = profile.Events("X").size() + profile.Events("b").size();
  RC_ASSERT(written == static_cast<std::size_t>(accepted));
  RC_ASSERT(profile.Events("e").size() == profile.Events("b").size());
}

}  // namespace
}  // namespace weft::testing
