// Plays the lanes of a plan as queues, with nothing but the plan's edges and triggers holding ops
// back, in an order drawn at random: what a run of the plan may look like in time. It has its own
// reading of what ops do, and takes from the plan only its data.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/dependencies.h"
#include "weft/plan.h"

namespace weft::testing {

// SplitMix64 (Steele, Lea and Flood, 2014): most of a play is drawing.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // From 0 up to but not including `end`, which is below 2^32.
  std::uint32_t Below(std::size_t end) {
    return static_cast<std::uint32_t>(((Next() >> 32) * end) >> 32);
  }

 private:
  std::uint64_t state_;
};

// One rank's run of one op in one step.
struct OpRun {
  int rank;
  std::int32_t index;  // in Plan::ops
  const Op& op;
  int step;
  bool joined = false;  // runs as one with the op before it
};

class Interleaving {
 public:
  Interleaving(const Plan& plan, int steps, std::uint64_t seed);
  virtual ~Interleaving() = default;

  // Each rank is held back by what it needs itself, as on a device, and not by the plan's lists.
  void HoldByOwnEdges();

  // Plays all steps, or as far as Fail(). Empty if every op has run; otherwise what is wrong.
  std::string Play();

 protected:
  // The trainer, which also asks for the uses of its passes in their order, hands over the gradient
  // of a pass of the open step.
  virtual void OnSubmit(int rank, std::int32_t matrix, int step, int pass) = 0;
  // Whether the op has work to do in its step; else it keeps its place in its lane, and nobody
  // waits for its other members.
  virtual bool Works(const OpRun&) const { return true; }
  // An op is under way on this rank. A collective's other members may not have come yet.
  virtual void OnStart(const OpRun&) {}
  // It reads what it reads, and overwrites what it writes. Once, some time between start and end;
  // no member of a collective ends before all have read.
  virtual void OnRead(const OpRun&) {}
  // It is over on this rank.
  virtual void OnFinish(const OpRun&) = 0;

  bool HeldByOwnEdges() const { return !own_edges_.empty(); }
  void Fail(std::string what) { error_ = std::move(what); }
  std::string Describe(const OpRun& run) const;

  const Plan& plan() const { return plan_; }
  int steps() const { return steps_; }
  int World() const { return static_cast<int>(plan_.lanes.size()); }
  bool Contains(const Op& op, int rank) const { return part_of_[op.group][rank] >= 0; }
  const std::vector<int>& Members(const Op& op, int rank) const {
    return plan_.groups[op.group].parts[part_of_[op.group][rank]];
  }
  bool IsRoot(const Op& op, int rank) const {
    return op.root >= 0 && Members(op, rank)[op.root] == rank;
  }
  absl::Span<const std::int32_t> Matrices(const Op& op) const;
  static bool Meets(const Op& op) { return op.kind <= OpKind::kVerdict; }

  // A collective of matrices with an owner each, which is its root.
  bool IsExchange(const Op& op) const {
    return Meets(op) && op.set >= 0 && plan_.matrices[op.matrix].exchange == op.set;
  }

  // Whether an op reads its source, and writes its target, of a matrix on a member of its group.
  bool Reads(const Op& op, std::int32_t m, int rank) const;
  bool Writes(const Op& op, std::int32_t m, int rank) const;
  // Whether a member is given again what it reads, in the same memory, as the root of a broadcast
  // in parts is by the all-gather of them.
  bool Rewrites(const Op& op, int rank) const {
    return op.kind == OpKind::kBroadcast && op.form == CollectiveForm::kSplit && IsRoot(op, rank);
  }

  // Gradients of the matrix that a rank hands over in a step, each to be reduced.
  int PassesOf(const PlanMatrix& matrix) const {
    const bool each = plan_.limits.reduce_each_pass && World() > 1;
    return each && matrix.gradient != GradientKind::kReduced ? plan_.limits.passes : 1;
  }
  // Which of them an op that waits for one has.
  int PassOf(const PlanMatrix& matrix, const Op& op) const {
    return PassesOf(matrix) > 1 ? op.pass : 0;
  }

  // Whether the rank has the matrix's weight from step to step.
  static bool KeepsWeight(const PlanMatrix& matrix, int rank) {
    return matrix.layout != Layout::kOwned || matrix.owner == rank;
  }
  static bool HoldsShard(const PlanMatrix& matrix) {
    return matrix.layout == Layout::kSharded || matrix.layout == Layout::kNodeSharded;
  }
  // Which of the blocks of rows is the rank's: local ranks have the same in every node, if there
  // are as many blocks.
  static int ShardOf(const PlanMatrix& matrix, int rank) {
    return rank % static_cast<int>(matrix.shard_rows.size());
  }
  static std::int64_t FirstRow(const PlanMatrix& matrix, int rank);
  static std::int64_t HeldRows(const PlanMatrix& matrix, int rank) {
    return HoldsShard(matrix) ? matrix.shard_rows[ShardOf(matrix, rank)] : matrix.rows;
  }
  // What a scatter leaves a member of: its rows, or its node's if they are to be cut further.
  std::int64_t ScatterRows(const Op& op, const PlanMatrix& matrix, int member) const;

  Draws& draws() { return draws_; }

 private:
  enum class Phase { kWaiting, kArrived, kRunning };

  struct Lane {
    std::size_t done = 0;  // ops of all steps
    Phase phase = Phase::kWaiting;
    bool has_read = false;
  };

  struct Rank {
    std::array<Lane, kLaneCount> lanes;
    std::vector<int> ops_done;  // per op: runs
    // Per matrix and pass: ops that read the submitted gradient; all that have, in all steps.
    std::vector<std::vector<int>> gradient_uses;
    std::vector<int> uses_done;
    std::vector<int> submitted;                 // per matrix: gradients of all steps
    int pass = 0;                               // of the open step
    std::vector<std::int32_t> to_be_submitted;  // in it
    int steps_closed = 0;
    int asked = 0;  // uses of all steps
  };

  // Of the members of one part, in one step.
  struct Meeting {
    std::size_t arrived = 0;
    std::size_t read = 0;
    std::size_t finished = 0;
  };

  // A lane, or the trainer (lane kLaneCount).
  static constexpr int kQueues = kLaneCount + 1;

  bool Move(int queue);
  bool Train(int rank);
  void OpenPass(Rank& self, int pass) const;
  bool GradientIsFree(const Rank& self, std::int32_t matrix) const;
  bool MoveLane(int rank, int lane_index);
  bool MayStart(const Rank& self, int rank, std::int32_t index, int step) const;
  std::vector<OpRun> Together(int rank, std::int32_t index, int step);
  void Read(const std::vector<OpRun>& runs, Lane& lane, Meeting& meeting);
  void Finish(const OpRun& run);
  void Wake(int queue);
  void WakeLanes(int rank);
  void WakeMembers(const OpRun& run);

  const Plan& plan_;
  const int steps_;
  Draws draws_;
  std::vector<std::vector<scheduler::Predecessors>> own_edges_;  // by rank and op, or none
  std::string error_;
  std::vector<std::vector<int>> part_of_;  // by group and rank; -1 for none
  std::vector<Rank> ranks_;
  // A part's meetings of one op in a step and in the next, from first_meeting_[op] on.
  std::vector<std::array<Meeting, 2>> meetings_;
  std::vector<std::size_t> first_meeting_;
  std::vector<int> awake_;  // queues that may be able to move
  std::vector<bool> is_awake_;
};

}  // namespace weft::testing
