// The runtime: registers matrices, commits a plan, takes jobs and closes steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/completion_queue.h"
#include "weft/cost_model.h"
#include "weft/device.h"
#include "weft/job.h"
#include "weft/matrix_spec.h"
#include "weft/metrics.h"
#include "weft/ownership.h"
#include "weft/plan.h"
#include "weft/strategy_choice.h"
#include "weft/topology.h"
#include "weft/update.h"

#pragma GCC visibility push(default)
namespace weft {

// When a matrix has no gradient on some rank at Step().
enum class MissingGradient {
  kError,  // the step changes nothing on any rank, and every job of it fails naming matrix and rank
  // That rank contributes zeros to the sum; a gradient that comes reduced must come from all ranks
  // or none, or the step changes nothing. With a schedule, see MatrixJob::lr.
  kZero,
  // As kZero, but a matrix for which no rank has a gradient is left as it is: no momentum, no
  // decay.
  kSkip,
};

// When a gradient holds a number that is not finite, on any rank. It never enters momentum or
// weights.
enum class NonFinite {
  kError,      // the step changes nothing on any rank and fails naming matrix and rank
  kSkipStep,   // the step changes nothing and is no error
  kSkipMatrix  // the matrix is left as it is, the others are updated
};

struct RuntimeOptions {
  // Prefix of the communicators' names; runtimes that share a transport need different ones.
  std::string name = "weft";
  Topology topology;  // its grid must have the transport's size
  Strategy strategy = Strategy::kOwner;
  // Strategy auto: `strategy` is not looked at, Commit() takes the one whose step is predicted to
  // be the shortest beside this trainer (docs/evaluator.md). Of matrices in order of registration;
  // rank 0's value, and its prediction, are those of all ranks.
  std::optional<TrainerModel> auto_strategy;
  bool strict = false;  // refuse plans with a fallback
  // Strategies owner and node_local: who finds the owners, and how long the program may take (rank
  // 0's value, with auto_strategy for each of them; the others wait meanwhile, so it must stay
  // below the transport's deadline; infinite: the owners depend on the registrations alone).
  // Plan::owner_report tells how good they are. Where the time ends the program, another run may
  // get other owners: equal weights, but State() elsewhere.
  OwnerSolver owner_solver = OwnerSolver::kMilp;
  absl::Duration owner_time_limit = absl::Seconds(5);
  // Caps (one that is not kept fails Commit()), layers, given owners (nobody is asked to find any
  // then), and costs of batches where those of `costs` will not do.
  OwnershipOptions ownership;
  // Matrices that scheduling cannot help; see there.
  PassThrough pass_through = PassThrough::kWhereItPays;
  // What NS and collectives cost: owners are balanced by it, matrices are passed through and NS
  // runs in batches where it says that they pay. Its grid is that of `topology`. Null: the analytic
  // model for `topology`. It tells all ranks the same, or Commit() fails.
  std::shared_ptr<const CostModel> costs;
  // Periodic matrices of one period refresh in different steps, so that each step has about the
  // same NS to do; false: all in steps that are multiples of their period. Which step is whose goes
  // by the registrations alone.
  bool spread_refreshes = true;
  MissingGradient missing_gradient = MissingGradient::kError;
  NonFinite non_finite = NonFinite::kError;
  // Clips by the norm of all gradients together (means over ranks, a loss scale undone), as
  // torch.nn.utils.clip_grad_norm_: each is multiplied by min(1, max_gradient_norm / (norm +
  // 1e-6)). Under kSkipMatrix the finite parts of a matrix that is left alone still count. 0: no
  // clipping.
  double max_gradient_norm = 0;
  // Longest wait of the host for this rank's own streams. Does not run while a collective is under
  // way: that ends at the transport's deadline, which names who is late.
  absl::Duration deadline = absl::Minutes(10);
  PlanLimits limits;
  CompletionQueue* completions = nullptr;
  bool trace = false;
  int decision_ring = 1024;  // entries kept per rank, >= 1
};

// The plan that a runtime with these options would commit, without devices or peers (other owners
// are possible where Plan::owner_report says that the time ended the program).
// Errors: as AddMatrix() and Commit().
absl::StatusOr<Plan> PlanFor(const std::vector<MatrixSpec>& matrices,
                             const RuntimeOptions& options);

// One rank's runtime. Calls come from one thread (the trainer's: its collectives and Weft's must be
// issued from one place), except where marked thread-safe. Calls that may block on a peer: those
// named Wait*, those marked collective, the destructor, and Submit(), Step() and ParameterNeeded()
// where two earlier steps, or the matrix's last reduction, are still under way.
//
// After a failure (a peer lost, a deadline, a rule's error) the runtime is dead: every job still
// under way, and every call after this rank has learned of it, returns that failure. What it caught
// on the way is lost: a matrix whose job was closed by Step() and has not reached Stage::kDelivered
// may have the old weight, the new one or parts of both, and a state of either step. Go on from a
// checkpoint. Refused calls (bad input) change nothing.
class Runtime {
 public:
  // `device` and `transport` must outlive the runtime. The order of destruction is runtime,
  // transport, device: the runtime's collectives run on the transport, and the transport's
  // operations in the device's streams. Each rank has its own of all three. InvalidArgument names
  // the option.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const RuntimeOptions& options,
                                                         Device& device, Transport& transport);

  // Waits for work in flight until the deadline, then aborts it.
  virtual ~Runtime() = default;

  // Before Commit(). InvalidArgument (duplicate name, negative shape, shard rows that do not add
  // up, bad rule options, null weight, memory of another's weight) names the matrix.
  virtual absl::StatusOr<MatrixId> AddMatrix(MatrixSpec spec) = 0;

  // Collective, once. Compares the registrations of all ranks, plans, validates, compares the
  // plans, creates communicators and buffers, warms up. A difference between ranks is
  // InvalidArgument on all of them and names the first matrix or option that differs, with both
  // values; what fails on one rank (memory, a kernel) fails on all of them, naming it. A failure is
  // final: AddMatrix() and Commit() return it from then on.
  virtual absl::Status Commit() = 0;

  // Reductions are issued in plan order, from the matrix registered last to the first, as backward
  // passes yield gradients: until the jobs of all later matrices have been submitted, a job's
  // Wait(Stage::kReduced) and WaitOn() may refuse. Collect the jobs and wait when all are in.
  // NotFound for an unknown matrix, AlreadyExists for a second gradient in one step,
  // InvalidArgument for a null gradient, a rate that is not finite or, with
  // limits.reduce_each_pass, a `more` that does not fit the micro-step; FailedPrecondition there
  // while a reduction of the micro-step before is not issued, for want of a gradient or because
  // layers are held (it may be repeated; layers that never were needed count as left out).
  virtual absl::StatusOr<Job> Submit(const MatrixJob& job) = 0;

  // The gradients of the open step and of later ones are `scale` times the true ones; they are
  // divided by it. Finite, > 0, equal on all ranks, else the step changes nothing and fails.
  virtual absl::Status SetLossScale(double scale) = 0;

  // Closes the step: everything planned is issued. Matrices without a job are handled by
  // options.missing_gradient (with kError this rank's Step() returns FailedPrecondition naming
  // them, and the step changes nothing on any rank; it is closed all the same, steps() has grown,
  // and the next Submit() is of the next step). Weights are not written before work that `caller`
  // holds now has run; null means the caller's reads are done.
  virtual absl::Status Step(Stream* caller = nullptr) = 0;

  // Issues what can be issued, and reports a failure that has come up since. Never needed for
  // progress of what has been issued.
  virtual absl::Status Progress() = 0;

  // Makes `stream` wait until every parameter of `layer` from the last closed step is delivered on
  // this rank; a no-op before the first step. NotFound for a layer without matrices.
  //
  // Layout owned: the weights of `layer` are here (Parameter()) from now on, also before the first
  // step, until ParameterReleased(), and those of later layers are on their way. A step has
  // limits.passes forward passes over the layers, in order of registration, each followed by a
  // backward one in the opposite order; every pass may leave layers out: a need is taken for the
  // first that the step still has of the layer. A layer that is needed again is released on that
  // stream, which has to come after the stream that used it. FailedPrecondition where the step has
  // no further pass, and while what comes first in plan order is missing: the gradients of later
  // layers in the last backward pass (in each, with limits.reduce_each_pass), and the release of
  // layers whose place this one takes; the call may be repeated when it has come.
  virtual absl::Status ParameterNeeded(int layer, Stream& stream) = 0;
  // The same for a trainer that computes on the host: blocks until then. The step's error, if any.
  virtual absl::Status WaitForLayer(int layer) = 0;
  // Layout owned: what `stream` holds now is the last that reads the layer's weights in this pass;
  // null: that has run. Layers are released in the order in which they were needed, else
  // FailedPrecondition. Step() releases what is left. A no-op for layers of other layouts.
  virtual absl::Status ParameterReleased(int layer, Stream* stream = nullptr) = 0;
  // Device memory of the weight on this rank, as its layout has it; of an owned matrix whole, and
  // from ParameterNeeded() to ParameterReleased() alone, but on its owner. Null when empty.
  virtual absl::StatusOr<const void*> Parameter(MatrixId matrix) const = 0;
  // Blocks until the last closed step is complete on this rank; its outcome.
  virtual absl::Status WaitForStep() = 0;

  // Steps closed so far, those before a loaded checkpoint included.
  virtual std::int64_t steps() const = 0;
  // After Commit().
  virtual const Plan& plan() const = 0;
  // After Commit() with auto_strategy, the same on all ranks: what was chosen, why, and from what.
  virtual const std::optional<StrategyReport>& strategy_report() const = 0;
  // This rank's optimizer state of a matrix, empty where it holds none: Muon's momentum, AdamW's m
  // then v, rows as held here. Valid while no step is under way.
  virtual absl::StatusOr<absl::Span<float>> State(MatrixId matrix) = 0;

  // The next four are collective, wait for the last closed step, and fail on all ranks alike,
  // naming the rank at fault. Between steps alone: FailedPrecondition while there are gradients of
  // an open step. As to all that is collective, ranks come to them at the same place among their
  // calls of Submit(), Step() and, of owned layers, ParameterNeeded(); else collectives cross,
  // which ends the runtime.
  //
  // Writes what Load() goes on from into `folder`, which all ranks see and which is made where
  // missing. A folder holds one checkpoint: the old one counts until the new one is complete and
  // synced, and is removed then. Ranks wait for the slowest disk, which must be done within the
  // transport's deadline (as at Load()). After an error (of the file system, with its code) the
  // folder holds a whole one, the old one unless the last sync failed, and the runtime goes on.
  virtual absl::Status Save(const std::string& folder, const SaveOptions& options = {}) = 0;
  // Goes on from a checkpoint of any grid, strategy and layout: after Commit() and before this
  // runtime has been used (FailedPrecondition), steps() is what it was then. Everything that is
  // read is checked before anything is changed: NotFound where the folder has none; InvalidArgument
  // or DataLoss names the file that is missing, torn, damaged or of another save; InvalidArgument
  // the matrix that differs. What fails after that (the device) ends the runtime.
  virtual absl::Status Load(const std::string& folder, const LoadOptions& options = {}) = 0;
  // The same for a trainer's own checkpoint system. Save the description and, of each tensor, all
  // ranks' ranges. Without data it is not collective, and tells no description.
  virtual absl::StatusOr<ExportedState> ExportState(const ExportOptions& options = {}) = 0;
  // As Load(). `state` has the saved description and, in any order and any pieces, what this rank's
  // ExportState() with every_copy has ranges of; more than that is not looked at. The same
  // description on all ranks. InvalidArgument names the tensor that is missing or does not fit.
  virtual absl::Status ImportState(const ExportedState& state, const LoadOptions& options = {}) = 0;

  // Of the last complete step. FailedPrecondition before one.
  virtual absl::StatusOr<StepMetrics> Metrics() = 0;
  // Collective: every rank's Metrics(), in rank order.
  virtual absl::StatusOr<std::vector<StepMetrics>> MetricsOfAllRanks() = 0;
  virtual std::vector<MatrixCounters> Counters() const = 0;
  // Names of the matrices for which no rank had a gradient in the last `steps` complete steps:
  // what silently does not train. Empty while fewer steps are complete.
  virtual std::vector<std::string> WithoutGradient(std::int64_t steps) const = 0;

  // The last decisions, oldest first. Thread-safe.
  virtual std::vector<Decision> Decisions() const = 0;
  // The same as one line of text each. Thread-safe.
  virtual std::string DescribeDecisions() const = 0;

  // Adds a span of the trainer's own work to the trace, times on the device's clock. Kept only with
  // options.trace.
  virtual void AddTraceSpan(std::string name, Nanos begin, Nanos end) = 0;
  // Collective: gathers all ranks' traces to rank 0, which writes Chrome/Perfetto JSON to `path`
  // (beside it, then renamed). FailedPrecondition without options.trace.
  virtual absl::Status WriteTrace(const std::string& path) = 0;
};

}  // namespace weft
#pragma GCC visibility pop
