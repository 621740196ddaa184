#include "tests/fakes/capture.h"

#include <algorithm>
#include <string>
#include <utility>

namespace weft::fakes {
namespace {

constexpr int kModeGlobal = 0;
constexpr int kModeRelaxed = 2;

void See(std::vector<std::size_t>& seen, const std::vector<std::size_t>& other) {
  if (seen.size() < other.size()) seen.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) seen[i] = std::max(seen[i], other[i]);
}

std::vector<std::size_t>& SeenBy(Stream* stream) {
  return stream->capture->branches[stream->branch].seen;
}

void Append(Stream* stream, CapturedOp op) {
  op.branch = stream->branch;
  std::vector<std::size_t>& seen = SeenBy(stream);
  if (seen.size() <= stream->branch) seen.resize(stream->branch + 1, 0);
  ++seen[stream->branch];
  stream->capture->body->ops.push_back(std::move(op));
}

void AddBranch(const std::shared_ptr<Capture>& capture, Stream* stream) {
  stream->branch = capture->branches.size();
  stream->capture = capture;
  capture->branches.push_back(Capture::Branch{stream, {}});
  capture->body->branch_devices.push_back(stream->device);
}

}  // namespace

int BeginCapture(World& world, Stream* stream, int mode) {
  if (stream->legacy) return kCaptureUnsupported;
  if (stream->capture != nullptr) return kInvalidValue;
  auto capture = std::make_shared<Capture>();
  capture->id = ++world.capture_count;
  capture->mode = mode;
  capture->owner = &Thread::Current();
  AddBranch(capture, stream);
  world.captures.push_back(std::move(capture));
  return kSuccess;
}

int EndCapture(World& world, Stream* stream, std::shared_ptr<Graph>* graph) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || stream->branch != 0) return kCaptureUnmatched;
  if (capture->mode != kModeRelaxed && capture->owner != &Thread::Current()) {
    return kCaptureWrongThread;
  }
  bool joined = true;
  std::vector<std::size_t>& seen = SeenBy(stream);
  seen.resize(capture->branches.size(), 0);
  for (std::size_t i = 1; i < capture->branches.size(); ++i) {
    const std::vector<std::size_t>& own = capture->branches[i].seen;
    joined &= i >= own.size() || own[i] == seen[i];
  }
  for (const Capture::Branch& branch : capture->branches) branch.stream->capture.reset();
  for (Event& event : world.events) {
    if (event.capture == capture) event.capture.reset();
  }
  std::erase(world.captures, capture);
  if (capture->invalid) return kCaptureInvalidated;
  if (!joined) return kCaptureUnjoined;
  *graph = std::make_shared<Graph>(Graph{capture->body});
  return kSuccess;
}

int CaptureWork(Stream* stream, Work work, bool host_function) {
  if (stream->capture->invalid) return kCaptureInvalidated;
  CapturedOp op;
  op.work = std::move(work);
  op.host_function = host_function;
  Append(stream, std::move(op));
  return kSuccess;
}

int CaptureRecord(Stream* stream, Event* event, bool external) {
  if (stream->capture->invalid) return kCaptureInvalidated;
  if (external) {
    CapturedOp op;
    op.kind = CapturedOp::Kind::kRecordExternal;
    op.event = event;
    Append(stream, std::move(op));
    return kSuccess;
  }
  event->record.reset();
  event->capture = stream->capture;
  event->captured_branch = stream->branch;
  event->captured_seen = SeenBy(stream);
  event->captured_seen.resize(std::max(event->captured_seen.size(), stream->branch + 1), 0);
  return kSuccess;
}

int CaptureWait(World& world, Stream* stream, Event* event, bool external) {
  const std::shared_ptr<Capture> capture =
      stream->capture != nullptr ? stream->capture : event->capture;
  if (capture->invalid) return kCaptureInvalidated;
  if (external && stream->capture != nullptr) {
    CapturedOp op;
    op.kind = CapturedOp::Kind::kWaitExternal;
    op.event = event;
    Append(stream, std::move(op));
    return kSuccess;
  }
  if (event->capture == nullptr) {
    return Invalidate(world, *capture, kCaptureIsolation, "cudaStreamWaitEvent");
  }
  if (event->capture != capture) {
    event->capture->invalid = true;
    return Invalidate(world, *capture, kCaptureMerge, "cudaStreamWaitEvent");
  }
  if (stream->legacy) {
    return Invalidate(world, *capture, kCaptureImplicit, "cudaStreamWaitEvent");
  }
  if (stream->capture == nullptr) AddBranch(capture, stream);
  CapturedOp op;
  op.kind = CapturedOp::Kind::kWait;
  op.wait_branch = event->captured_branch;
  op.wait_ops = event->captured_seen[event->captured_branch];
  Append(stream, std::move(op));
  See(SeenBy(stream), event->captured_seen);
  return kSuccess;
}

int Invalidate(World& world, Capture& capture, int error, const char* call) {
  capture.invalid = true;
  world.Report(FaultKind::kMisuse, std::string(call) + " is not possible in the capture of " +
                                       capture.branches.front().stream->Label());
  return error;
}

int UnsafeCall(World& world, const Thread& thread, const char* call) {
  if (thread.capture_mode == kModeRelaxed) return kSuccess;
  int error = kSuccess;
  for (const std::shared_ptr<Capture>& capture : world.captures) {
    const bool own = capture->owner == &thread && capture->mode != kModeRelaxed;
    const bool others = thread.capture_mode == kModeGlobal && capture->mode == kModeGlobal;
    if (own || others) error = Invalidate(world, *capture, kCaptureUnsupported, call);
  }
  return error;
}

// Branch 0 runs on the stream of the launch, the others on the exec's own streams; they begin with
// a wait for branch 0, and it ends with waits for them.
int LaunchGraph(World& world, std::unique_lock<std::mutex>& lock,
                const std::shared_ptr<GraphExec>& exec, Stream* stream) {
  const std::shared_ptr<GraphBody> body = exec->body;
  std::vector<Work> works;
  lock.unlock();
  for (const CapturedOp& op : body->ops)
    works.push_back(op.work.replay ? op.work.replay() : op.work);
  lock.lock();
  for (std::size_t i = exec->inner.size() + 1; i < body->branch_devices.size(); ++i) {
    exec->inner.push_back(world.NewStream(body->branch_devices[i], 1, 0, true));
  }
  // Launches of one exec run one after another, on whatever streams.
  auto begin = world.MakeNode(Node::Kind::kRecord, stream, Work{"graph", {}, {}, {}});
  if (exec->end != nullptr) begin->waits.push_back(exec->end);
  world.Enqueue(begin);
  std::vector<std::vector<std::shared_ptr<Mark>>> marks(body->branch_devices.size());
  for (std::size_t i = 0; i < body->ops.size(); ++i) {
    const CapturedOp& op = body->ops[i];
    Stream* on = op.branch == 0 ? stream : exec->inner[op.branch - 1];
    auto node = world.MakeNode(Node::Kind::kWork, on, std::move(works[i]));
    node->host_function = op.host_function;
    if (op.kind == CapturedOp::Kind::kWait) {
      node->kind = Node::Kind::kWait;
      const auto& waited = marks[op.wait_branch];
      node->waits.push_back(op.wait_ops == 0 ? begin->mark : waited[op.wait_ops - 1]);
    } else if (op.kind == CapturedOp::Kind::kWaitExternal) {
      node->kind = Node::Kind::kWait;
      if (op.event->record != nullptr) node->waits.push_back(op.event->record);
    } else if (op.kind == CapturedOp::Kind::kRecordExternal) {
      node->kind = Node::Kind::kRecord;
      op.event->record = node->mark;
    }
    marks[op.branch].push_back(node->mark);
    world.Enqueue(std::move(node));
  }
  exec->end = world.Record(stream);
  return kSuccess;
}

}  // namespace weft::fakes
