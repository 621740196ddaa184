#include "runtime/step_recorder.h"

#include <algorithm>

namespace weft::runtime {
namespace {

constexpr double kSecondsPerNano = 1e-9;

}  // namespace

void StepRecorder::AddJob(std::int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++records_[step].metrics.jobs;
}

void StepRecorder::AddHostTime(std::int64_t step, Nanos duration) {
  const std::lock_guard<std::mutex> lock(mutex_);
  records_[step].host_time += duration;
}

void StepRecorder::StepCalled(std::int64_t step, Nanos time) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Record& record = records_[step];
  record.step_called = time;
  record.last_delivered = time;
}

void StepRecorder::AddOp(std::int64_t step, const Op& op, std::int64_t bytes, Nanos begin,
                         Nanos end, bool delivers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Record& record = records_[step];
  const double seconds = kSecondsPerNano * static_cast<double>(end - begin);
  if (op.lane == Lane::kCompute) {
    record.compute.emplace_back(begin, end);
    record.metrics.compute_seconds += seconds;
    if (op.kind == OpKind::kOrthogonalize) record.metrics.ns_seconds += seconds;
  } else {
    record.metrics.lane_seconds[static_cast<int>(op.lane)] += seconds;
    record.metrics.lane_bytes[static_cast<int>(op.lane)] += bytes;
  }
  if (delivers) record.last_delivered = std::max(record.last_delivered, end);
}

void StepRecorder::AddWait(std::int64_t step, Nanos begin, Nanos end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  records_[step].waits.emplace_back(begin, end);
}

void StepRecorder::AddOutcome(std::int64_t step, const Outcome& outcome) {
  const std::lock_guard<std::mutex> lock(mutex_);
  StepMetrics& metrics = records_[step].metrics;
  metrics.gradient_norm = outcome.gradient_norm;
  metrics.clip_factor = outcome.clip_factor;
  metrics.skipped_matrices = std::count(outcome.skipped.begin(), outcome.skipped.end(), true);
}

void StepRecorder::Complete(std::int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  records_[step].complete = true;
  records_.erase(records_.begin(), records_.lower_bound(step));
}

std::optional<StepMetrics> StepRecorder::LastComplete() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = records_.rbegin(); it != records_.rend(); ++it) {
    if (it->second.complete) {
      StepMetrics metrics = Summarize(it->second);
      metrics.step = it->first;
      return metrics;
    }
  }
  return std::nullopt;
}

StepMetrics StepRecorder::Summarize(const Record& record) {
  StepMetrics metrics = record.metrics;
  metrics.step_called = record.step_called;
  metrics.last_delivered = record.last_delivered;
  metrics.optimizer_seconds =
      kSecondsPerNano * static_cast<double>(record.last_delivered - record.step_called);
  // The compute lane is a queue, so its spans are disjoint and overlaps add up.
  Nanos exposed = 0;
  for (const Span& wait : record.waits) {
    exposed += wait.second - wait.first;
    for (const Span& busy : record.compute) {
      exposed -=
          std::max<Nanos>(0, std::min(wait.second, busy.second) - std::max(wait.first, busy.first));
    }
  }
  metrics.exposed_communication_seconds = kSecondsPerNano * static_cast<double>(exposed);
  if (metrics.jobs > 0) {
    metrics.host_microseconds_per_job = 1e-3 * static_cast<double>(record.host_time) / metrics.jobs;
  }
  return metrics;
}

}  // namespace weft::runtime

namespace weft {

double OptimizerSeconds(const std::vector<StepMetrics>& ranks) {
  if (ranks.empty()) return 0;
  Nanos called = ranks[0].step_called, delivered = ranks[0].last_delivered;
  for (const StepMetrics& rank : ranks) {
    called = std::max(called, rank.step_called);
    delivered = std::max(delivered, rank.last_delivered);
  }
  return 1e-9 * static_cast<double>(delivered - called);
}

double Imbalance(const std::vector<StepMetrics>& ranks) {
  double most = 0, sum = 0;
  for (const StepMetrics& rank : ranks) {
    most = std::max(most, rank.compute_seconds);
    sum += rank.compute_seconds;
  }
  return sum > 0 ? most * static_cast<double>(ranks.size()) / sum : 1;
}

}  // namespace weft
