#include "runtime/executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "runtime/messages.h"
#include "runtime/op_text.h"
#include "scheduler/dependencies.h"
#include "scheduler/slots.h"

namespace weft::runtime {

using base::View;

Executor::Executor(const Context& context) : context_(context) {
  staging_ = context_.device.CreateStream("weft staging");
  for (int lane = 0; lane < kStreamLanes; ++lane) {
    const auto priority =
        static_cast<Lane>(lane) == Lane::kCompute ? StreamPriority::kRaised : StreamPriority::kHigh;
    streams_[lane] = context_.device.CreateStream(
        absl::StrCat("weft ", View(Name(static_cast<Lane>(lane)))), priority);
  }
  caller_event_ = context_.device.CreateEvent();
  BuildLocalOps();
  MapStages();
  BuildWaits();
  BuildUses();
  if (!uses_.empty()) ends_ = context_.device.CreateStream("weft ends of uses");
  stream_ops_ = ops_.size() - lanes_[static_cast<int>(Lane::kCaller)].size();
  remaining_ = {stream_ops_, stream_ops_};
  running_.fill(-1);
}

Executor::~Executor() {
  // Streams drain on destruction; nothing may be left that waits for a peer or the caller.
  const absl::Status cause = absl::CancelledError("the runtime was destroyed");
  AbortStreams(cause);
  // What still runs may abort the other streams, so none goes before all are empty.
  for (auto& stream : streams_) (void)stream->Synchronize(absl::InfiniteDuration());
}

absl::Status Executor::Prepare() {
  return context_.device.math().Prepare(stream_of(Lane::kCompute));
}

void Executor::BuildLocalOps() {
  const Plan& plan = context_.plan;
  std::vector<int> local_of(plan.ops.size(), -1);
  for (int lane = 0; lane < kLaneCount; ++lane) {
    for (const std::int32_t id : plan.lanes[context_.rank][lane]) {
      local_of[id] = static_cast<int>(ops_.size());
      lanes_[lane].push_back(local_of[id]);
      LocalOp local;
      local.id = id;
      const Op& op = plan.ops[id];
      local.joined = id > 0 && plan.ops[id - 1].with_next;
      if (IsCollective(op.kind)) local.bytes = PayloadBytes(plan, op, context_.rank);
      for (auto& event : local.event) event = context_.device.CreateEvent();
      ops_.push_back(std::move(local));
    }
  }
  int collectives = 0;
  for (const int index : local_of) {
    if (index >= 0 && IsCollective(OpOf(ops_[index]).kind)) ops_[index].collective = collectives++;
  }
  const auto other_lanes = [&](const std::vector<std::int32_t>& ids, Lane lane) {
    std::vector<int> result;
    for (const std::int32_t id : ids) {
      if (local_of[id] >= 0 && plan.ops[id].lane != lane) result.push_back(local_of[id]);
    }
    return result;
  };
  const auto needed = scheduler::PredecessorsOn(plan, context_.rank);
  const auto extend = [](std::vector<int>& ops, const std::vector<int>& more) {
    ops.insert(ops.end(), more.begin(), more.end());
  };
  for (const PlanMatrix& matrix : plan.matrices) {
    matrices_.emplace_back().gradient_readers.resize(scheduler::ReducingPasses(plan, matrix));
  }
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = OpOf(ops_[i]);
    ops_[i].listed = other_lanes(op.after, op.lane);
    LocalOp& waiting = WaitingFor(static_cast<int>(i));
    extend(waiting.after, other_lanes(needed[ops_[i].id].after, op.lane));
    extend(waiting.after_previous, other_lanes(needed[ops_[i].id].after_previous, op.lane));
    if (op.source == Slot::kGradient) {
      for (const std::int32_t m : MatricesOf(ops_[i])) {
        matrices_[m].gradient_readers[ReducesEachPass(m) ? op.pass : 0].push_back(
            static_cast<int>(i));
      }
    }
  }
  arguments_.resize(plan.matrices.size());
  counters_.resize(plan.matrices.size());
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    counters_[i].name = plan.matrices[i].name;
    counters_[i].path = plan.matrices[i].path;
    counters_[i].fallback = plan.matrices[i].fallback;
    matrices_[i].gradient_bytes =
        SlotRows(plan, static_cast<std::int32_t>(i), Slot::kGradient, context_.rank) *
        plan.matrices[i].cols * SizeOf(plan.matrices[i].dtype);
    matrices_[i].staged = context_.device.CreateEvent();
  }
}

// A stage is one event: its op also waits for the matrix's earlier ops on other lanes. On a rank
// that only sends nothing else orders them.
void Executor::JoinLanes(int last, const std::vector<int>& ops) {
  LocalOp& waiting = WaitingFor(last);
  for (const int op : ops) {
    if (OpOf(ops_[op]).lane == OpOf(waiting).lane || ops_[op].id >= waiting.id) continue;
    waiting.after.push_back(op);
  }
}

void Executor::MapStages() {
  std::vector<std::array<int, kStageCount>> last(matrices_.size());
  for (auto& stages : last) stages.fill(-1);
  std::vector<std::vector<int>> ops_of(matrices_.size());
  int verdict = -1;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = OpOf(ops_[i]);
    if (op.kind == OpKind::kVerdict) verdict = static_cast<int>(i);
    if (op.trigger == Trigger::kNeeded) continue;  // of no job
    for (const std::int32_t m : MatricesOf(ops_[i])) {
      ops_of[m].push_back(static_cast<int>(i));
      int& known = last[m][static_cast<int>(op.stage)];
      if (known < 0 || ops_[known].id < ops_[i].id) known = static_cast<int>(i);
    }
  }
  for (std::size_t m = 0; m < matrices_.size(); ++m) {
    // A stage without work here is reached with the next that has some, else with the one before.
    int previous = -1;
    for (int stage = kStageCount - 1; stage > 0; --stage) {
      if (last[m][stage] < 0) last[m][stage] = previous;
      previous = last[m][stage];
    }
    for (int stage = 1; stage < kStageCount; ++stage) {
      if (last[m][stage] < 0) last[m][stage] = last[m][stage - 1];
    }
    // An owned matrix whose gradient is reduced has work on its owner alone.
    if (last[m][kStageCount - 1] < 0) last[m].fill(verdict);
    WEFT_CHECK(last[m][kStageCount - 1] >= 0) << "no op for " << counters_[m].name;
    for (int stage = 1; stage < kStageCount; ++stage) {
      ops_[last[m][stage]].completes.emplace_back(static_cast<std::int32_t>(m),
                                                  static_cast<Stage>(stage));
      JoinLanes(last[m][stage], ops_of[m]);
    }
    matrices_[m].last_op = last[m][kStageCount - 1];
    ops_[matrices_[m].last_op].delivers = true;
  }
}

void Executor::Announce(std::int32_t matrix, std::shared_ptr<JobState> job, double lr,
                        double weight_decay) {
  MatrixState& state = matrices_[matrix];
  state.job = std::move(job);
  if (!ReducesEachPass(matrix)) state.submitted = context_.plan.limits.passes;
  arguments_[matrix] = {lr, weight_decay, context_.verdict.control(matrix),
                        context_.verdict.norm(matrix)};
  context_.decisions.Add({context_.device.clock().Now(), step_, Decision::What::kSubmitted, -1,
                          matrix, Lane::kCompute, 0});
}

bool Executor::Ready(const LocalOp& local) const {
  const Op& op = OpOf(local);
  if (op.trigger == Trigger::kStepClosed) {
    if (!closed_) return false;
  } else if (op.trigger == Trigger::kNeeded) {
    if (op.use > needed_) return false;
  } else {
    for (const std::int32_t m : MatricesOf(local)) {
      if (matrices_[m].submitted <= op.pass) return false;
    }
  }
  const auto issued = [&](int before) { return ops_[before].issued_step == step_; };
  return std::all_of(local.listed.begin(), local.listed.end(), issued) &&
         std::all_of(local.after.begin(), local.after.end(), issued);
}

int Executor::CountTogether(int lane) const {
  return OpOf(ops_[lanes_[lane][cursor_[lane]]]).with_next ? 2 : 1;
}

void Executor::IssueReady() {
  issuing_ = true;
  bool progress = true;
  while (progress) {
    progress = EndSkippedUses();
    for (int lane = 0; lane < kStreamLanes; ++lane) {
      std::size_t& cursor = cursor_[lane];
      while (cursor < lanes_[lane].size()) {
        const int count = CountTogether(lane);
        const auto first = lanes_[lane].begin() + static_cast<std::ptrdiff_t>(cursor);
        const int collective = ops_[*first].collective;
        const bool ready =
            (collective < 0 || collective == next_collective_) &&
            std::all_of(first, first + count, [&](int index) { return Ready(ops_[index]); });
        if (!ready) break;
        Issue(*first, count);
        cursor += count;
        if (collective >= 0) next_collective_ += count;
        progress = true;
      }
    }
  }
  issuing_ = false;
}

void Executor::Issue(int index, int count) {
  EnqueueWaits(index);
  // To a tool as in a trace, the first one's range holds the other's.
  const base::Range first(context_.annotations.of(ops_[index].id), step_);
  const base::Range second(count > 1 ? context_.annotations.of(ops_[index + 1].id) : nullptr,
                           step_);
  const Annotations::Attribution attribution(context_.annotations, ops_[index].id, step_);
  for (int i = index; i < index + count; ++i) EnqueueBegin(i);
  StepArguments arguments;
  arguments.step = step_;
  arguments.matrices = arguments_;
  arguments.verdict = context_.verdict.values();
  arguments.verdict_count = context_.verdict.value_count();
  absl::InlinedVector<std::int32_t, 2> ids;
  for (int i = index; i < index + count; ++i) ids.push_back(ops_[i].id);
  const Op& op = OpOf(ops_[index]);
  FailIfNot(op, context_.issuer.Issue(ids, stream_of(op.lane), arguments));
  // The first one's time holds the others', as spans of a trace must.
  for (int i = index + count - 1; i >= index; --i) EnqueueEnd(i);
}

void Executor::FailIfNot(const Op& op, const absl::Status& status) {
  if (!status.ok()) (void)Fail(InContext(op, step_, status));
}

void Executor::EnqueueBegin(int index) {
  LocalOp& local = ops_[index];
  const Op& op = OpOf(local);
  Stream& stream = stream_of(op.lane);
  LogDecision(Decision::What::kIssued, step_, local);
  const std::int64_t step = step_;
  stream.EnqueueAlways([this, index, step](const absl::Status&) { Started(index, step); });
  stream.RecordTime(&local.begin[Parity(step)]);
  if (op.kind == OpKind::kVerdict) FailIfNot(op, context_.verdict.EnqueueTally(stream, step));
}

void Executor::EnqueueEnd(int index) {
  LocalOp& local = ops_[index];
  const Op& op = OpOf(local);
  Stream& stream = stream_of(op.lane);
  const int parity = Parity(step_);
  const std::int64_t step = step_;
  if (op.kind == OpKind::kVerdict) FailIfNot(op, context_.verdict.EnqueueDecision(stream, step));
  if (op.lane == Lane::kCompute) {
    // Before the record hands the bare error on to other lanes, whose members would tell it.
    stream.EnqueueAlways([this, index, step](const absl::Status& status) {
      if (!status.ok()) (void)Fail(InContext(OpOf(ops_[index]), step, status));
    });
  }
  stream.RecordTime(&local.end[parity]);
  stream.Record(*local.event[parity]);
  local.issued_step = step_;
  Jobs jobs;
  for (const auto& [matrix, stage] : local.completes) {
    jobs.push_back(matrices_[matrix].job);
    jobs.back()->MarkIssued(stage, local.event[parity]);
  }
  stream.EnqueueAlways([this, index, step, jobs = std::move(jobs)](const absl::Status& status) {
    Finished(index, step, jobs, status);
  });
}

void Executor::Close(Stream* caller) {
  caller_waits_ = caller != nullptr;
  if (caller != nullptr) {
    caller->Record(*caller_event_);
    // Uses that are still held end with what the caller has enqueued.
    const bool held = std::any_of(uses_.begin(), uses_.begin() + awaited_uses_,
                                  [&](const LocalUse& use) { return use.skipped && !Ended(use); });
    if (held) ends_->Wait(*caller_event_);
  }
  needed_ = static_cast<std::int32_t>(uses_.size()) - 1;
  ClearMissing();
  closed_ = true;
  IssueReady();
  WEFT_CHECK(std::all_of(ops_.begin(), ops_.end(), [&](const LocalOp& local) {
    return local.issued_step == step_;
  })) << "a validated plan can always be issued";
  ++step_;
  cursor_ = {};
  next_collective_ = 0;
  closed_ = false;
  needed_ = -1;
  for (LocalUse& use : uses_) use.skipped = false;
  for (MatrixState& state : matrices_) state.submitted = 0;
}

void Executor::LogDecision(Decision::What what, std::int64_t step, const LocalOp& local) {
  const Op& op = OpOf(local);
  context_.decisions.Add(
      {context_.device.clock().Now(), step, what, local.id, op.matrix, op.lane, local.bytes});
}

void Executor::Started(int index, std::int64_t step) {
  LogDecision(Decision::What::kStarted, step, ops_[index]);
  const std::lock_guard<std::mutex> lock(mutex_);
  running_[static_cast<int>(OpOf(ops_[index]).lane)] = index;
}

absl::Status Executor::InContext(const Op& op, std::int64_t step,
                                 const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat("rank ", context_.rank, ": ", View(Name(op.kind)),
                                                  " of ", SubjectOf(context_.plan, op), " in step ",
                                                  step, ": ", status.message()));
}

void Executor::Finished(int index, std::int64_t step, const Jobs& jobs, absl::Status status) {
  const LocalOp& local = ops_[index];
  const Op& op = OpOf(local);
  const int parity = Parity(step);
  if (status.ok() && context_.transport.ended()) status = context_.transport.failure();
  LogDecision(status.ok() ? Decision::What::kFinished : Decision::What::kFailed, step, local);
  if (!status.ok()) {
    status = Fail(status);
  } else {
    if (op.kind == OpKind::kVerdict) {
      context_.recorder.AddOutcome(step, context_.verdict.outcome(step));
    }
    const bool judged = op.trigger == Trigger::kStepClosed;
    const absl::Status outcome = judged ? context_.verdict.status(step) : absl::OkStatus();
    const Nanos end = local.end[parity];
    // The lane is busy once for what runs as one.
    context_.recorder.AddOp(step, op, local.bytes, local.joined ? end : local.begin[parity], end,
                            local.delivers);
    Count(local, step);
    if (context_.trace != nullptr) {
      context_.trace->Add(Trace::OpSpan{step, local.id, local.begin[parity], local.end[parity]});
    }
    status = outcome;
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i]->MarkReached(local.completes[i].second, status);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  running_[static_cast<int>(op.lane)] = -1;
  if (--remaining_[parity] == 0) {
    remaining_[parity] = stream_ops_;
    completed_steps_ = std::max(completed_steps_, step + 1);
    context_.recorder.Complete(step);
    changed_.notify_all();
  }
}

void Executor::Count(const LocalOp& local, std::int64_t step) {
  const Op& op = OpOf(local);
  const std::lock_guard<std::mutex> lock(mutex_);
  // Of all matrices: of owned ones the other ranks have no op after the verdict.
  for (std::size_t m = 0; op.kind == OpKind::kVerdict && m < counters_.size(); ++m) {
    if (context_.verdict.had_gradient(step, static_cast<std::int32_t>(m))) {
      counters_[m].last_gradient_step = std::max(counters_[m].last_gradient_step, step);
    }
  }
  for (const std::int32_t m : MatricesOf(local)) {
    MatrixCounters& counters = counters_[m];
    if (IsCollective(op.kind)) {
      // One in pieces counts with its last.
      const bool last = op.piece + 1 == op.pieces;
      counters.collectives += last;
      if (op.set < 0) counters.bytes += local.bytes;
      if (op.set >= 0 && last) counters.bytes += ShareOf(op, m);
    }
    if (op.trigger != Trigger::kStepClosed) continue;
    if (context_.verdict.skipped(step, m)) continue;
    if (op.kind == OpKind::kOrthogonalize) ++counters.ns_runs;
    if (op.kind == OpKind::kApply || op.kind == OpKind::kElementwise ||
        op.kind == OpKind::kCustom) {
      ++counters.updates;
    }
  }
}

std::int64_t Executor::ShareOf(const Op& op, std::int32_t matrix) const {
  const PlanMatrix& its = context_.plan.matrices[matrix];
  return its.rows * its.cols * static_cast<std::int64_t>(SizeOf(SlotType(its, op.source)));
}

bool Executor::CollectiveRunning() const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](int index) { return index >= 0 && IsCollective(OpOf(ops_[index]).kind); });
}

std::string Executor::DescribeRunning() const {
  std::string text;
  for (const int index : running_) {
    if (index < 0) continue;
    const Op& op = OpOf(ops_[index]);
    absl::StrAppend(&text, text.empty() ? "its " : ", ", View(Name(op.lane)), " lane is at ",
                    View(Name(op.kind)));
    if (op.matrix >= 0) absl::StrAppend(&text, " of ", SubjectOf(context_.plan, op));
  }
  return text.empty() ? "nothing runs on its lanes" : text;
}

absl::Status Executor::Await(absl::FunctionRef<std::string()> what,
                             absl::FunctionRef<std::optional<absl::Status>()> wait) {
  for (;;) {
    if (std::optional<absl::Status> answer = wait()) return *std::move(answer);
    std::string running;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (CollectiveRunning()) continue;
      running = DescribeRunning();
    }
    return Fail(absl::DeadlineExceededError(absl::StrCat("rank ", context_.rank, " waited ",
                                                         absl::FormatDuration(context_.deadline),
                                                         " for ", what(), ": ", running)));
  }
}

absl::Status Executor::AwaitEvent(const Event& event, const char* what, std::int32_t matrix) {
  const auto describe = [&] {
    return absl::StrCat("the ", what, " of matrix '", counters_[matrix].name, "'");
  };
  return Await(describe, [&]() -> std::optional<absl::Status> {
    const absl::Status status = event.Synchronize(context_.deadline);
    if (absl::IsDeadlineExceeded(status) && failure().ok()) return std::nullopt;
    return status;
  });
}

void Executor::Drain() {
  for (const auto& stream : streams_) (void)stream->Synchronize(context_.deadline);
}

absl::Status Executor::WaitForStep(std::int64_t step) {
  Clock& clock = context_.device.clock();
  const base::Range range(kWaitForStep, step);
  const Nanos begin = clock.Now();
  WEFT_RETURN_IF_ERROR(Await([&] { return absl::StrCat("step ", step); },
                             [&]() -> std::optional<absl::Status> {
                               const Nanos deadline = base::DeadlineAfter(clock, context_.deadline);
                               std::unique_lock<std::mutex> lock(mutex_);
                               while (completed_steps_ <= step && failure_.ok()) {
                                 if (clock.WaitUntil(changed_, lock, deadline)) continue;
                                 if (completed_steps_ <= step && failure_.ok()) return std::nullopt;
                               }
                               return failure_;
                             }));
  context_.recorder.AddWait(step, begin, clock.Now());
  return context_.verdict.status(step);
}

std::int64_t Executor::completed_steps() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return completed_steps_;
}

absl::Status Executor::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

absl::Status Executor::Fail(const absl::Status& cause) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    // One thread finds the root cause, which may take the transport a moment; the others wait for
    // its word, so that all jobs tell the same story.
    while (failing_ && failure_.ok()) changed_.wait(lock);
    if (!failure_.ok()) return failure_;
    failing_ = true;
  }
  const base::Range range(kFailure, context_.rank);
  absl::Status root = context_.transport.failure();
  if (root.ok()) root = cause;
  context_.transport.Abort(root);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = root;
    changed_.notify_all();
  }
  AbortStreams(root);
  return root;
}

void Executor::AbortStreams(const absl::Status& cause) {
  for (auto& stream : streams_) stream->Abort(cause);
  staging_->Abort(cause);
  if (ends_ != nullptr) ends_->Abort(cause);
}

std::vector<MatrixCounters> Executor::Counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace weft::runtime
