// Which events ops wait for, and which they need not since others imply them.
#include <algorithm>

#include "runtime/executor.h"

namespace weft::runtime {

bool Executor::Implied(int before, int after) const {
  const int lane = static_cast<int>(OpOf(ops_[before]).lane);
  return ops_[after].known[lane] >= PlaceOf(ops_[before]);
}

std::vector<int> Executor::Latest(const std::vector<int>& ops) const {
  std::vector<int> latest;
  for (const int op : ops) {
    const bool implied = std::any_of(ops.begin(), ops.end(),
                                     [&](int other) { return other != op && Implied(op, other); });
    if (!implied) latest.push_back(op);
  }
  return latest;
}

// Of the ops that others must come after, those that `known` does not hold yet; it does then. The
// latest first: what it comes after may imply others.
std::vector<int> Executor::NotIn(Frontier& known, std::vector<int> ops) const {
  std::sort(ops.begin(), ops.end(), [&](int a, int b) { return ops_[a].id > ops_[b].id; });
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  std::vector<int> kept;
  for (const int op : ops) {
    const LocalOp& before = ops_[op];
    const Lane lane = OpOf(before).lane;
    if (lane != Lane::kCaller) {
      if (known[static_cast<int>(lane)] >= PlaceOf(before)) continue;
      scheduler::Merge(known, before.known);
    }
    kept.push_back(op);
  }
  return kept;
}

// In the plan's order, in which no op comes after a later one.
void Executor::BuildWaits() {
  std::vector<int> order;
  for (int lane = 0; lane < kStreamLanes; ++lane) {
    order.insert(order.end(), lanes_[lane].begin(), lanes_[lane].end());
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) { return ops_[a].id < ops_[b].id; });
  std::array<Frontier, kStreamLanes> reached = {};
  for (const int index : order) {
    LocalOp& local = ops_[index];
    const int lane = static_cast<int>(OpOf(local).lane);
    local.after = NotIn(reached[lane], local.after);
    ++reached[lane][lane];
    local.known = reached[lane];
  }
  // A lane begins a step with what it knew at the end of the one before.
  for (const int index : order) {
    LocalOp& local = ops_[index];
    Frontier& known = reached[static_cast<int>(OpOf(local).lane)];
    for (const int before : local.after) {
      if (OpOf(ops_[before]).lane != Lane::kCaller) {
        scheduler::Merge(known, ops_[before].known_previous);
      }
    }
    local.after_previous = NotIn(known, local.after_previous);
    local.known_previous = known;
  }
  BuildTrainersWaits(order);
}

// For gradients, and for the caller before weights are read and written.
void Executor::BuildTrainersWaits(const std::vector<int>& order) {
  std::vector<int> after_caller;
  for (const int index : order) {
    LocalOp& local = ops_[index];
    LocalOp& waiting = WaitingFor(index);
    const Op& op = OpOf(local);
    const auto implies = [&](int before) {
      return ops_[before].id < local.id && Implied(before, index);
    };
    // Fetches go by uses, and may be issued before the caller has closed the step.
    const bool on_weights = op.source == Slot::kWeight || op.target == Slot::kWeight;
    if (on_weights && op.trigger == Trigger::kStepClosed &&
        std::none_of(after_caller.begin(), after_caller.end(), implies)) {
      waiting.waits_for_caller = true;
      after_caller.push_back(index);
    }
    if (op.source != Slot::kGradient) continue;
    for (const std::int32_t m : MatricesOf(local)) {
      const std::vector<int>& readers =
          matrices_[m].gradient_readers[ReducesEachPass(m) ? op.pass : 0];
      if (std::none_of(readers.begin(), readers.end(), implies)) waiting.staged.push_back(m);
    }
  }
  for (MatrixState& state : matrices_) {
    for (std::vector<int>& readers : state.gradient_readers) readers = Latest(readers);
  }
}

void Executor::EnqueueWaits(int index) {
  const LocalOp& local = ops_[index];
  Stream& stream = stream_of(OpOf(local).lane);
  const int parity = Parity(step_);
  for (const int before : local.after) stream.Wait(*ops_[before].event[parity]);
  for (const int before : local.after_previous) stream.Wait(*ops_[before].event[1 - parity]);
  // Of those that the staging stream has brought, the last one brought implies the others.
  const MatrixState* last = nullptr;
  for (const std::int32_t m : local.staged) {
    const MatrixState& state = matrices_[m];
    if (state.staged_at > (last == nullptr ? 0 : last->staged_at)) last = &state;
  }
  std::int64_t& knows = lane_knows_staged_[static_cast<int>(OpOf(local).lane)];
  if (last != nullptr && last->staged_at > knows) {
    stream.Wait(*last->staged);
    knows = last->staged_at;
  }
  if (local.waits_for_caller && caller_waits_) stream.Wait(*caller_event_);
}

void Executor::StagingWaitsFor(int index, std::int64_t step) {
  if (step < 0) return;
  const LocalOp& local = ops_[index];
  const auto through = [&](int lane, std::int64_t place) {
    return step * static_cast<std::int64_t>(lanes_[lane].size()) + place;
  };
  const int own = static_cast<int>(OpOf(local).lane);
  if (staging_knows_[own] >= through(own, local.known[own])) return;
  staging_->Wait(*local.event[Parity(step)]);
  for (int lane = 0; lane < kStreamLanes; ++lane) {
    // Nothing known of this step's ops says nothing of those of the step before.
    if (local.known[lane] == 0) continue;
    staging_knows_[lane] = std::max(staging_knows_[lane], through(lane, local.known[lane]));
  }
}

std::vector<int> Executor::DeliveredBy(absl::Span<const std::int32_t> matrices) const {
  std::vector<int> last;
  for (const std::int32_t m : matrices) last.push_back(matrices_[m].last_op);
  std::sort(last.begin(), last.end());
  last.erase(std::unique(last.begin(), last.end()), last.end());
  return Latest(last);
}

void Executor::WaitDelivered(absl::Span<const int> ops, Stream& stream) {
  for (const int op : ops) stream.Wait(*ops_[op].event[Parity(step_ - 1)]);
}

}  // namespace weft::runtime
