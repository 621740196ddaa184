// Captured streams and graphs.
#include <thread>

#include "tests/fakes/program.h"

namespace weft::fakes {
namespace {

constexpr std::size_t kBytes = 64;

class CaptureTest : public FakesTest {
 protected:
  void SetUp() override {
    FakesTest::SetUp();
    a_ = NewStream("a");
    b_ = NewStream("b");
    fork_ = NewEvent();
    join_ = NewEvent();
    data_ = NewMemory(kBytes);
  }
  void Append(cudaStream_t stream, const std::string& name, std::vector<Access> accesses = {}) {
    Work work = Touch(name, std::move(accesses));
    work.run = [this, name] { order_ += name; };
    EXPECT_EQ(Engine::Get().Enqueue(stream, std::move(work)), 0);
  }
  cudaGraphExec_t End(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return exec;
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  std::byte* data_ = nullptr;
  std::string order_;
};

TEST_F(CaptureTest, CapturedWorkRunsWithEachLaunch) {
  OK(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal));
  EXPECT_TRUE(Engine::Get().IsCapturing(a_));
  EXPECT_FALSE(Engine::Get().IsCapturing(b_));
  Append(a_, "1");
  Append(a_, "2");
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  OK(cudaStreamIsCapturing(a_, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  const cudaGraphExec_t exec = End(a_);
  OK(cudaStreamIsCapturing(a_, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(order_, "");
  OK(cudaGraphLaunch(exec, a_));
  Append(a_, "3");
  OK(cudaGraphLaunch(exec, b_));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(std::count(order_.begin(), order_.end(), '1'), 2);
  EXPECT_EQ(std::count(order_.begin(), order_.end(), '2'), 2);
  EXPECT_EQ(order_.substr(0, 2), "12");
  OK(cudaGraphExecDestroy(exec));
  EXPECT_EQ(FaultText(), "");
}

TEST_F(CaptureTest, BranchesOfAGraphAreOrderedByTheirEvents) {
  for (const bool join_before_last : {true, false}) {
    SetUp();
    OK(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal));
    Append(a_, "1", {{data_, kBytes, true}});
    OK(cudaEventRecord(fork_, a_));
    OK(cudaStreamWaitEvent(b_, fork_, 0));
    Append(b_, "2", {{data_, kBytes, false}});
    OK(cudaEventRecord(join_, b_));
    if (join_before_last) {
      OK(cudaStreamWaitEvent(a_, join_, 0));
    }
    Append(a_, "3", {{data_, kBytes, true}});
    if (!join_before_last) {
      OK(cudaStreamWaitEvent(a_, join_, 0));
    }
    const cudaGraphExec_t exec = End(a_);
    // A launch follows the one before it, on whatever stream.
    for (cudaStream_t stream : {a_, b_, a_}) OK(cudaGraphLaunch(exec, stream));
    OK(cudaDeviceSynchronize());
    if (join_before_last) {
      EXPECT_EQ(FaultText(), "");
    } else {
      EXPECT_GE(Count(FaultKind::kRace), 1);
      EXPECT_EQ(Count(FaultKind::kRace), static_cast<int>(Faults().size())) << FaultText();
    }
    OK(cudaGraphExecDestroy(exec));
  }
}

TEST_F(CaptureTest, WorkAfterALaunchFollowsAllItsBranches) {
  OK(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork_, a_));
  OK(cudaStreamWaitEvent(b_, fork_, 0));
  Append(b_, "1", {{data_, kBytes, true}});
  OK(cudaEventRecord(join_, b_));
  OK(cudaStreamWaitEvent(a_, join_, 0));
  const cudaGraphExec_t exec = End(a_);
  Append(a_, "0", {{data_, kBytes, true}});
  OK(cudaGraphLaunch(exec, a_));
  Append(a_, "2", {{data_, kBytes, false}});
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(order_, "012");
  EXPECT_EQ(FaultText(), "");
  Append(b_, "3", {{data_, kBytes, false}});
  OK(cudaGraphLaunch(exec, a_));
  OK(cudaDeviceSynchronize());
  ExpectFault(FaultKind::kRace, {"'1' on device 0 stream 'graph'", "'3' on device 0 stream 'b'"});
}

TEST_F(CaptureTest, CapturedWorkIsMadeAnewWithEachLaunch) {
  OK(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal));
  int launches = 0;
  Work work = Touch("captured", {});
  work.replay = [&] {
    Work made = Touch("launch " + std::to_string(launches++), {});
    made.meeting = std::make_shared<Meeting>(made.name, 1, nullptr);
    return made;
  };
  Engine::Get().Enqueue(a_, std::move(work));
  const cudaGraphExec_t exec = End(a_);
  EXPECT_EQ(launches, 0);
  for (int i = 0; i < 2; ++i) OK(cudaGraphLaunch(exec, a_));
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(Executed(), (std::vector<std::string>{"device 0 stream 'a': launch 0",
                                                  "device 0 stream 'a': launch 1"}));
}

TEST_F(CaptureTest, AnotherThreadsQueryInvalidatesAGlobalCapture) {
  struct Case {
    cudaStreamCaptureMode capture, thread;
    bool invalid;
  };
  for (const Case& rule :
       {Case{cudaStreamCaptureModeGlobal, cudaStreamCaptureModeGlobal, true},
        Case{cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, false},
        Case{cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed, false},
        Case{cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal, false},
        Case{cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeGlobal, false}}) {
    SetUp();
    OK(cudaStreamBeginCapture(a_, rule.capture));
    std::thread([&] {
      cudaStreamCaptureMode mode = rule.thread;
      EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
      EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
      EXPECT_EQ(cudaEventQuery(fork_),
                rule.invalid ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    }).join();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    OK(cudaStreamIsCapturing(a_, &status));
    EXPECT_EQ(status,
              rule.invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph),
              rule.invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    EXPECT_EQ(Count(FaultKind::kMisuse), rule.invalid ? 1 : 0) << FaultText();
  }
}

// Unless the capture or the thread is relaxed.
TEST_F(CaptureTest, TheCapturingThreadMayNotAskEither) {
  for (const auto capture : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                             cudaStreamCaptureModeRelaxed}) {
    for (const auto thread : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed}) {
      SetUp();
      const bool allowed = std::max(capture, thread) == cudaStreamCaptureModeRelaxed;
      OK(cudaStreamBeginCapture(a_, capture));
      cudaStreamCaptureMode mode = thread;
      OK(cudaThreadExchangeStreamCaptureMode(&mode));
      void* data = nullptr;
      EXPECT_EQ(cudaMalloc(&data, 8), allowed ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
      OK(cudaThreadExchangeStreamCaptureMode(&mode));
      cudaGraph_t graph = nullptr;
      EXPECT_EQ(cudaStreamEndCapture(a_, &graph),
                allowed ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
    }
  }
}

TEST_F(CaptureTest, WhatACaptureForbids) {
  const auto end = [&] {
    cudaGraph_t graph = nullptr;
    return cudaStreamEndCapture(a_, &graph);
  };
  const auto begin = [&] {
    SetUp();
    EXPECT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  };
  begin();
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin();  // An event of before the capture.
  OK(cudaEventRecord(fork_, b_));
  EXPECT_EQ(cudaStreamWaitEvent(a_, fork_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin();  // An event of the capture, outside of it.
  OK(cudaEventRecord(fork_, a_));
  EXPECT_EQ(cudaEventQuery(fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin();  // A branch that does not come back.
  OK(cudaEventRecord(fork_, a_));
  OK(cudaStreamWaitEvent(b_, fork_, 0));
  Append(b_, "1");
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);

  begin();
  cudaGraph_t none = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(b_, &none), cudaErrorStreamCaptureUnmatched);
  OK(end());

  SetUp();  // The default stream waits for all blocking ones.
  OK(cudaStreamCreate(&a_));
  OK(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaMemsetAsync(data_, 0, 8, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  SetUp();
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
}

// Each launch waits for what the event stood for at the launch, and moves the other one.
TEST_F(CaptureTest, ExternalEventsReachOutOfAGraph) {
  OK(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal));
  OK(cudaStreamWaitEvent(a_, fork_, cudaEventWaitExternal));
  Append(a_, "2", {{data_, kBytes, false}});
  OK(cudaEventRecordWithFlags(join_, a_, cudaEventRecordExternal));
  const cudaGraphExec_t exec = End(a_);
  for (int i = 0; i < 2; ++i) {
    Append(b_, "1", {{data_, kBytes, true}});
    OK(cudaEventRecord(fork_, b_));
    OK(cudaGraphLaunch(exec, a_));
    OK(cudaStreamWaitEvent(b_, join_, 0));
  }
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(order_, "1212");
  EXPECT_EQ(FaultText(), "");
}

}  // namespace
}  // namespace weft::fakes
