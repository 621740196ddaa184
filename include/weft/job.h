// One matrix's update in one step: what is submitted, and the handle that follows it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weft/event.h"
#include "weft/plan.h"
#include "weft/stream.h"

#pragma GCC visibility push(default)
namespace weft {

// Index of a registered matrix, in order of registration.
using MatrixId = std::int32_t;

struct MatrixJob {
  MatrixId matrix = -1;
  // Device memory in the matrix's dtype, dense rows: rows x cols (GradientKind::kLocal, or kReduced
  // when replicated) or this rank's rows (kReduced when sharded, kReplica). May be null when that
  // is empty; with MissingGradient::kZero also to say that this rank has none: it then contributes
  // zeros.
  const void* gradient = nullptr;
  // Complete when the gradient is. Null: it is complete now, Weft copies it before Submit() returns
  // and the memory is the caller's again. Otherwise Weft copies it in a stream after the event; the
  // memory must stay untouched until the job has reached Stage::kReduced. The event itself may be
  // recorded again or destroyed after Submit() returns.
  const Event* ready = nullptr;
  // Another gradient of this matrix follows in this step, from the next micro-step, and this one is
  // added to it: the sum takes part in the step, in the matrix's dtype, rounded after each
  // addition. Nothing is reduced yet, the handle refers to nothing, and rates count from the last
  // job alone.
  //
  // With limits.reduce_each_pass a local gradient is reduced at once, and the reduced ones are
  // added. A step has limits.passes jobs of such a matrix, all but the last with `more`, and on a
  // rank all such matrices have theirs of one micro-step before any has its next.
  bool more = false;
  // Set the rule's values from this step on, for learning-rate schedules; finite and >= 0. All
  // ranks must mean the same, also a rank that submits no job: where it would use another value,
  // the step changes nothing and fails on every rank. Such a rank submits a job without a gradient.
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

namespace runtime {
class JobState;
}

// A shared reference to a submitted job; copies are cheap, a default-made one refers to nothing and
// must not be used. Thread-safe. May outlive the runtime, whose end completes every stage with an
// error.
//
// A stage is reached on this rank when the last of this rank's work towards it is done. A stage
// that this rank has no work for (NS on a rank that does not own the matrix) is reached with the
// next one it has work for, since only then is it known here; if there is none, with the one
// before.
class Job {
 public:
  Job() = default;
  explicit Job(std::shared_ptr<runtime::JobState> state) : state_(std::move(state)) {}

  const std::string& matrix() const;
  std::int64_t step() const;

  // True when `stage` has been reached; the error if the job has failed on its way there.
  absl::StatusOr<bool> Reached(Stage stage) const;

  // Makes `stream` wait for `stage`. FailedPrecondition while the work towards it has not been
  // issued (later stages are issued by Step(), earlier ones when the jobs before it in plan order
  // have come); nothing is enqueued then.
  absl::Status WaitOn(Stream& stream, Stage stage) const;

  // Blocks the host until `stage` is reached; its status. FailedPrecondition as for WaitOn,
  // DeadlineExceeded after `timeout`.
  absl::Status Wait(Stage stage, absl::Duration timeout) const;

  // Calls `callback` once when `stage` is reached or has failed: at once if that is so already,
  // otherwise on a thread of Weft's. It must be short and must not call into Weft. What it throws
  // is dropped: who watches a job cannot change how it ends, nor what other callbacks are told.
  void OnStage(Stage stage, std::function<void(const absl::Status&)> callback) const;

 private:
  std::shared_ptr<runtime::JobState> state_;
};

}  // namespace weft
#pragma GCC visibility pop
