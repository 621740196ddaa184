// Graphs: what was enqueued on captured streams, to be enqueued again with each launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/fakes/world.h"

namespace weft::fakes {

struct CapturedOp {
  enum class Kind { kWork, kWait, kRecordExternal, kWaitExternal };
  Kind kind = Kind::kWork;
  std::size_t branch = 0;
  Work work;
  bool host_function = false;
  std::size_t wait_branch = 0, wait_ops = 0;  // for the first ops of a branch
  Event* event = nullptr;
};

struct GraphBody {
  std::vector<CapturedOp> ops;      // in the order of capture
  std::vector<int> branch_devices;  // branch 0 is the stream that is launched on
};

struct Capture {
  struct Branch {
    Stream* stream = nullptr;
    std::vector<std::size_t> seen;  // of each branch: how many ops it stands behind
  };
  std::uint64_t id = 0;
  int mode = 0;  // cudaStreamCaptureMode
  const Thread* owner = nullptr;
  bool invalid = false;
  std::vector<Branch> branches;
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();
};

struct Graph {
  std::shared_ptr<GraphBody> body;
};

struct GraphExec {
  std::shared_ptr<GraphBody> body;
  std::vector<Stream*> inner;  // of branches 1 and up
  std::shared_ptr<Mark> end;   // of the last launch
};

// All with the world's lock held. Errors are cudaError_t.

int BeginCapture(World& world, Stream* stream, int mode);
int EndCapture(World& world, Stream* stream, std::shared_ptr<Graph>* graph);
int CaptureWork(Stream* stream, Work work, bool host_function);
int CaptureRecord(Stream* stream, Event* event, bool external);
// `stream` or the event is captured.
int CaptureWait(World& world, Stream* stream, Event* event, bool external);
// For calls that CUDA calls potentially unsafe in a capture: an error, and the captures that it
// invalidates, where the thread's mode does not allow it.
int UnsafeCall(World& world, const Thread& thread, const char* call);
// A synchronising call on a captured stream, or an implicit one.
int Invalidate(World& world, Capture& capture, int error, const char* call);
int LaunchGraph(World& world, std::unique_lock<std::mutex>& lock,
                const std::shared_ptr<GraphExec>& exec, Stream* stream);

}  // namespace weft::fakes
