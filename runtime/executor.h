// Runs one rank's part of the plan, step after step: issues ops in plan order as their triggers
// fire, and sees to what follows when they have run.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/annotations.h"
#include "runtime/decision_log.h"
#include "runtime/job_state.h"
#include "runtime/memory.h"
#include "runtime/op_issuer.h"
#include "runtime/step_recorder.h"
#include "runtime/trace.h"
#include "runtime/verdict.h"
#include "scheduler/rank_ops.h"
#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/metrics.h"
#include "weft/plan.h"
#include "weft/runtime.h"

namespace weft::runtime {

// A step's jobs are announced with Announce(), the step is closed with Close(); then the next one
// begins. All calls come from the caller's thread except those marked thread-safe.
//
// Host order: an op is issued when all ops before it on its lane are, its trigger has fired, and
// what it depends on is issued; a pair (Op::with_next) when that is so of both. Collectives
// moreover go in the plan's one order whatever their lanes, since a device may run those of two
// communicators one after another as they were launched: no rank-local timing ever changes the
// order in which a rank launches them.
class Executor {
 public:
  // Lanes that are streams of Weft's: all but the caller's, which is the last.
  static constexpr int kStreamLanes = static_cast<int>(Lane::kCaller);

  struct Context {
    Device& device;
    Transport& transport;
    const Plan& plan;
    int rank;
    const Memory& memory;
    OpIssuer& issuer;
    Verdict& verdict;
    StepRecorder& recorder;
    DecisionLog& decisions;
    const Annotations& annotations;
    Trace* trace;  // null: not wanted
    absl::Duration deadline;
  };

  explicit Executor(const Context& context);
  // Aborts what is still running.
  ~Executor();

  // Before the first step: no call of one waits for the device. Blocks.
  absl::Status Prepare();

  // The step that jobs belong to now, and the one that the first jobs belonged to.
  std::int64_t step() const { return step_; }
  std::int64_t first_step() const { return first_step_; }
  // Nothing has been issued or needed.
  bool unused() const;
  // An unused one goes on where another has closed `steps` steps; `last_gradient_steps` as of
  // MatrixCounters, by matrix.
  void StartAt(std::int64_t steps, absl::Span<const std::int64_t> last_gradient_steps);

  // Makes the matrix's gradient known for this step, or for its next pass where each is reduced:
  // copies it to its slot (see MatrixJob::ready), or zeros when `gradient` is null and the slot is
  // not empty.
  absl::Status TakeGradient(std::int32_t matrix, const void* gradient, const Event* ready);
  // Adds another one to it.
  absl::Status AddGradient(std::int32_t matrix, const void* gradient, const Event* ready);
  // The matrix has a gradient, and a reduction, in every pass of a step.
  bool ReducesEachPass(std::int32_t matrix) const {
    return matrices_[matrix].gradient_readers.size() > 1;
  }
  // FailedPrecondition, naming a matrix that is reduced in each pass and has no gradient of `pass`
  // yet.
  absl::Status CheckGradientsOf(int pass) const;
  // A gradient of `pass`, which is not the first pass, is about to come, and the trainer is through
  // with the uses before `end`. FailedPrecondition, saying what for, while a reduction of the pass
  // before is not issued: its gradient may still lie in the slot.
  absl::Status BeginPass(int pass, std::int32_t end);
  // The gradient taken last is that of the matrix's next pass; ops that wait for it may be issued.
  void GradientTaken(std::int32_t matrix) { ++matrices_[matrix].submitted; }
  // The job's ops may be issued from now on; where each pass is reduced, as its gradients come.
  void Announce(std::int32_t matrix, std::shared_ptr<JobState> job, double lr, double weight_decay);
  // Issues everything that may be issued. What fails on the way fails its stream and, from there,
  // the runtime.
  void IssueReady();
  // Layout owned. The trainer has come to `use`: fires its trigger and makes `stream`, or with null
  // the host, wait for the weights. FailedPrecondition, saying what for, while their way is not
  // issued.
  absl::Status Need(std::int32_t use, Stream* stream);
  // What `stream` holds now (null: what has run) is the last that reads the weights of `use`. Uses
  // end in their order.
  void Release(std::int32_t use, Stream* stream);
  // A use that the trainer leaves out: it ends when its fetches are issued.
  void Skip(std::int32_t use);
  // Fires the trigger kStepClosed, issues the rest of the step and opens the next one. Passes that
  // lack a gradient get zeros. Work that writes weights waits for what `caller` holds now.
  void Close(Stream* caller);
  // The open step's ops reuse the events of the step before the last; only when that is complete
  // may they be issued.
  bool MayIssue() const { return completed_steps() >= step_ - 1; }

  // The ops after which all of `matrices` are delivered.
  std::vector<int> DeliveredBy(absl::Span<const std::int32_t> matrices) const;
  // Makes `stream` wait for such ops of the last closed step.
  void WaitDelivered(absl::Span<const int> ops, Stream& stream);
  // Ops are being issued: a rule's own code may be what calls.
  bool issuing() const { return issuing_; }
  // Calls `wait`, which blocks for at most the deadline, until it has an answer. Fails, saying what
  // this rank stands at while `what` is waited for, when it has none although no collective is
  // under way: those end at the transport's deadline, which knows who is late.
  absl::Status Await(absl::FunctionRef<std::string()> what,
                     absl::FunctionRef<std::optional<absl::Status>()> wait);
  // Blocks until the lanes are empty, or have failed, or the deadline has come.
  void Drain();
  // Blocks until `step` is complete; its outcome.
  absl::Status WaitForStep(std::int64_t step);
  std::int64_t completed_steps() const;

  // The first failure, or OK. Thread-safe.
  absl::Status failure() const;
  // Ends everything with `cause` (or with the root cause that the transport knows); returns what
  // has become the failure. Thread-safe.
  absl::Status Fail(const absl::Status& cause);

  std::vector<MatrixCounters> Counters() const;

 private:
  using Frontier = scheduler::Frontier;
  struct LocalOp {
    std::int32_t id = 0;
    // Of the same step: itself, what stands before it on its lane, and what they come after. And of
    // the step before.
    Frontier known = {};
    Frontier known_previous = {};
    // Local indices on other lanes. `listed`: what the plan lists, issued first. `after`: what this
    // rank's stream waits for, since its data needs it or, where a stage ends, since others work on
    // the matrix. Of an op that runs as one with the op before it these and all other waits are
    // that op's.
    std::vector<int> listed;
    std::vector<int> after;
    std::vector<int> after_previous;
    // By parity of the step: a wait for the step before must not see this step's record.
    std::array<std::shared_ptr<Event>, 2> event;
    std::array<Nanos, 2> begin = {};
    std::array<Nanos, 2> end = {};
    std::int64_t bytes = 0;                                 // collectives: payload here
    std::vector<std::pair<std::int32_t, Stage>> completes;  // stages of matrices
    bool delivers = false;
    bool joined = false;               // runs as one with the op before it
    std::vector<std::int32_t> staged;  // matrices whose gradient it waits for
    bool waits_for_caller = false;
    int collective = -1;  // its place among the collectives here, in the plan's order; -1: is none
    std::int64_t issued_step = -1;
  };
  // An op of the caller's lane belongs to the trainer's stream.
  struct LocalUse {
    std::vector<int> ops;  // local indices
    // As of ops.
    std::vector<int> listed;
    std::vector<int> after;
    std::vector<int> after_previous;
    bool skipped = false;
  };
  struct MatrixState {
    // By pass where each is reduced: local indices.
    std::vector<std::vector<int>> gradient_readers;
    std::size_t gradient_bytes = 0;  // of its slot here
    int last_op = -1;                // local index of the op that delivers
    std::unique_ptr<Event> staged;
    std::int64_t staged_at = 0;  // counts what the staging stream brings; 0: the host brought it
    int submitted = 0;           // passes of the open step whose gradient is there
    std::shared_ptr<JobState> job;
  };
  // The jobs whose stages an op completes, as LocalOp::completes.
  using Jobs = absl::InlinedVector<std::shared_ptr<JobState>, 1>;

  static int Parity(std::int64_t step) { return static_cast<int>(step & 1); }

  void BuildLocalOps();
  void BuildWaits();
  void BuildTrainersWaits(const std::vector<int>& order);
  std::vector<int> NotIn(Frontier& known, std::vector<int> ops) const;
  void BuildUses();
  std::int64_t PlaceOf(const LocalOp& local) const {
    return local.known[static_cast<int>(OpOf(local).lane)];
  }
  // `before` is over when `after`, of the same step, begins.
  bool Implied(int before, int after) const;
  // Without those that others of them imply.
  std::vector<int> Latest(const std::vector<int>& ops) const;
  // The staging stream waits for an op of `step`, unless it has waited for what implies it.
  void StagingWaitsFor(int index, std::int64_t step);
  void EndUse(std::int32_t use, Stream& stream);
  bool Ended(const LocalUse& use) const;
  // The op that has the waits of `index`: what runs as one waits as one, before it begins.
  LocalOp& WaitingFor(int index) { return ops_[ops_[index].joined ? index - 1 : index]; }
  // Ends skipped uses that can, in their order; true if there was one.
  bool EndSkippedUses();
  void MapStages();
  // `last` comes after those of `ops` that the plan has before it.
  void JoinLanes(int last, const std::vector<int>& ops);
  bool Ready(const LocalOp& local) const;
  // Null where no part of the gradient is kept here.
  void* GradientSlot(std::int32_t matrix) const;
  // Copies to the slot in the staging stream, or zeros where `gradient` is null.
  void StageGradient(std::int32_t matrix, const void* gradient, const Event* ready);
  // The ops that read the slot last, and their step.
  struct Readers {
    const std::vector<int>& ops;
    std::int64_t step;
  };
  Readers LastReaders(const MatrixState& state) const;
  // Zeros for the passes of the open step that lack a gradient.
  void ClearMissing();
  // An op, and with it the next `count` - 1 of its lane, with which it runs as one.
  void Issue(int index, int count);
  // `status` is what issuing `op` has come to.
  void FailIfNot(const Op& op, const absl::Status& status);
  void EnqueueWaits(int index);
  void EnqueueBegin(int index);
  void EnqueueEnd(int index);
  // What runs as one with the op at `cursor_` of the lane, itself included.
  int CountTogether(int lane) const;
  void AbortStreams(const absl::Status& cause);
  void Started(int index, std::int64_t step);
  void Finished(int index, std::int64_t step, const Jobs& jobs, absl::Status status);
  void Count(const LocalOp& local, std::int64_t step);
  // The same for the event of `what` of `matrix`.
  absl::Status AwaitEvent(const Event& event, const char* what, std::int32_t matrix);
  absl::Status InContext(const Op& op, std::int64_t step, const absl::Status& status) const;
  std::string DescribeRunning() const;
  bool CollectiveRunning() const;
  const Op& OpOf(const LocalOp& local) const { return context_.plan.ops[local.id]; }
  absl::Span<const std::int32_t> MatricesOf(const LocalOp& local) const {
    return weft::MatricesOf(context_.plan, OpOf(local));
  }
  // Bytes that a bucket's collective carries of one matrix.
  std::int64_t ShareOf(const Op& op, std::int32_t matrix) const;
  Stream& stream_of(Lane lane) const { return *streams_[static_cast<int>(lane)]; }
  void LogDecision(Decision::What what, std::int64_t step, const LocalOp& local);

  const Context context_;
  std::vector<LocalOp> ops_;
  std::vector<LocalUse> uses_;           // by Plan::uses
  std::int32_t needed_ = -1;             // the last use that the trainer has come to in this step
  std::int32_t awaited_uses_ = 0;        // from this one on, ops here come after none
  const Event* last_use_end_ = nullptr;  // of those before
  std::size_t stream_ops_ = 0;           // ops that are not of the caller's lane
  std::array<std::vector<int>, kLaneCount> lanes_;
  std::array<std::size_t, kLaneCount> cursor_ = {};
  int next_collective_ = 0;  // LocalOp::collective of what may be issued next
  std::vector<MatrixState> matrices_;
  std::vector<MatrixArguments> arguments_;  // by matrix, of the open step
  std::unique_ptr<Event> caller_event_;
  bool caller_waits_ = false;
  bool closed_ = false;
  bool issuing_ = false;
  std::int64_t step_ = 0;
  std::int64_t first_step_ = 0;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  absl::Status failure_;
  bool failing_ = false;
  std::array<std::size_t, 2> remaining_ = {};
  std::array<int, kStreamLanes> running_;  // local index of the op each lane is at, or -1
  std::int64_t completed_steps_ = 0;
  std::vector<MatrixCounters> counters_;

  // Last: their destruction waits for work that uses all of the above.
  std::unique_ptr<Stream> staging_;  // gradients on their way into their slots
  // By lane, the last of its ops that it has waited for, counted through all steps.
  std::array<std::int64_t, kStreamLanes> staging_knows_ = {};
  std::int64_t staged_ = 0;                                        // how much it has brought
  std::array<std::int64_t, kStreamLanes> lane_knows_staged_ = {};  // of that, by lane
  // What uses end with that belong to no stream of the trainer's; null in a plan without uses.
  // Apart from gradients: a use may wait for a fetch that stands behind a collective which waits
  // for a gradient.
  std::unique_ptr<Stream> ends_;
  std::array<std::unique_ptr<Stream>, kStreamLanes> streams_;
};

}  // namespace weft::runtime
