#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/access.h"
#include "scheduler/slots.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

// What a slot holds. A gradient counts the ranks whose gradients it is the sum of; other values are
// one of these.
constexpr std::int32_t kMomentumDone = -1;
constexpr std::int32_t kDirectionDone = -2;
constexpr std::int32_t kOldWeight = -3;
constexpr std::int32_t kNewWeight = -4;
constexpr std::int32_t kPartialSquares = -5;
constexpr std::int32_t kSquares = -6;

struct RankState {
  std::array<std::int32_t, kSlotCount> value = {};
  std::array<std::int32_t, kSlotCount> pass = {};  // the last in a slot's sum
  std::int32_t next_pass = 0;                      // whose gradient is to be reduced
  int rule_runs = 0;
  int weight_writes = 0;
  Stage stage = Stage::kSubmitted;
};

class MatrixUpdate {
 public:
  MatrixUpdate(const Plan& plan, std::vector<RankState>& ranks) : plan_(plan), ranks_(ranks) {}

  // `refreshes`: of the steps in which NS runs on it, or of the others.
  void Begin(std::int32_t m, bool refreshes) {
    const PlanMatrix& matrix = plan_.matrices[m];
    matrix_ = &matrix;
    refreshes_ = refreshes;
    extents_.emplace(plan_, m);
    passes_ = ReducingPasses(plan_, matrix);
    checked_rows_ = 0;
    const int world = World();
    for (RankState& rank : ranks_) {
      rank = {};
      Value(rank, Slot::kGradient) = matrix.gradient == GradientKind::kReduced ? world
                                     : matrix.gradient == GradientKind::kReplica
                                         ? plan_.topology.grid.ranks_per_node
                                         : 1;
      Value(rank, Slot::kWeight) = kOldWeight;
    }
    uses_ = 0;
    piece_ = 0;
    if (matrix.layout != Layout::kOwned) return;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (static_cast<std::int32_t>(rank) != matrix.owner) Value(ranks_[rank], Slot::kWeight) = 0;
    }
  }

  absl::Status Visit(std::int32_t index) {
    const Op& visited = plan_.ops[index];
    if (visited.when == (refreshes_ ? When::kBetween : When::kRefresh)) return absl::OkStatus();
    index_ = index;
    // Nothing of the matrix comes between the pieces of an op, and it is done with the last.
    const bool same =
        piece_ == 0 ||
        (visited.kind == last_->kind && visited.group == last_->group &&
         visited.source == last_->source && visited.target == last_->target &&
         visited.pieces == last_->pieces && visited.root == last_->root &&
         visited.lane == last_->lane && visited.trigger == last_->trigger &&
         visited.stage == last_->stage && visited.use == last_->use && visited.pass == last_->pass);
    if (visited.piece != piece_ || !same) {
      return InvalidPlan(DescribeOp(plan_, index), " is piece ", visited.piece, " of ",
                         visited.pieces, " where piece ", piece_, " is due");
    }
    last_ = &visited;
    piece_ = visited.piece + 1 < visited.pieces ? piece_ + 1 : 0;
    if (piece_ > 0) return absl::OkStatus();
    for (const std::vector<int>& part : plan_.groups[plan_.ops[index].group].parts) {
      WEFT_RETURN_IF_ERROR(VisitPart(plan_.ops[index], part));
    }
    return absl::OkStatus();
  }

  absl::Status VisitPart(const Op& op, const std::vector<int>& members) {
    const bool fetches = op.trigger == Trigger::kNeeded;  // for the trainer, not for a job
    for (int rank : members) {
      if (fetches) continue;
      if (op.stage < ranks_[rank].stage) {
        return Fail(rank,
                    absl::StrCat("works towards stage ", std::string(Name(op.stage)),
                                 " after one towards ", std::string(Name(ranks_[rank].stage))));
      }
      ranks_[rank].stage = op.stage;
    }
    if (!IsCollective(op.kind)) {
      for (int rank : members) WEFT_RETURN_IF_ERROR(Compute(op, rank));
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(Move(op, members));
    const bool counts = op.target == Slot::kWeight && !fetches;
    for (std::size_t place = 0; counts && place < members.size(); ++place) {
      if (Receives(op, members, place)) WEFT_RETURN_IF_ERROR(CountWrite(members[place]));
    }
    return absl::OkStatus();
  }

  absl::Status End() const {
    if (piece_ > 0) return InvalidPlan(DescribeOp(plan_, index_), " lacks its last pieces");
    const std::int64_t rows = plan_.check_gradients ? matrix_->rows : 0;
    if (checked_rows_ != rows) {
      return absl::InvalidArgumentError(absl::StrCat("plan: of the gradient of matrix '",
                                                     matrix_->name, "', ", checked_rows_,
                                                     " rows are checked, not ", rows, "."));
    }
    std::int64_t expected_uses = 0;
    for (const Use& use : plan_.uses) expected_uses += use.layer == matrix_->layer;
    if (matrix_->layout == Layout::kOwned && uses_ != expected_uses * World()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "plan: matrix '", matrix_->name, "' of layer ", matrix_->layer, " is delivered ", uses_,
          " times to its ranks, not ", expected_uses * World(), "."));
    }
    const PathKind path = PathOf(plan_.topology, plan_.strategy, *matrix_);
    for (int rank = 0; rank < World(); ++rank) {
      const RankState& state = ranks_[rank];
      const bool everywhere = !HasOwner(path) || StateOnShards(path);
      const int expected = everywhere || extents_->IsOwner(rank) ? 1 : 0;
      if (state.rule_runs != expected) {
        return absl::InvalidArgumentError(
            absl::StrCat("plan: matrix '", matrix_->name, "' is updated ", state.rule_runs,
                         " times on rank ", rank, ", not ", expected, "."));
      }
      // Who fetches an owned weight gets the new one in the next step.
      if (matrix_->layout == Layout::kOwned && rank != matrix_->owner) continue;
      if (state.weight_writes != 1 || state.value[static_cast<int>(Slot::kWeight)] != kNewWeight) {
        return absl::InvalidArgumentError(absl::StrCat("plan: the new weight of matrix '",
                                                       matrix_->name, "' does not reach rank ",
                                                       rank, "."));
      }
    }
    return absl::OkStatus();
  }

 private:
  static std::int32_t& Value(RankState& state, Slot slot) {
    return state.value[static_cast<int>(slot)];
  }
  int World() const { return plan_.topology.grid.size(); }

  absl::Status Fail(int rank, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: on rank ", rank, ", ", DescribeOp(plan_, index_, rank), " ", what, "."));
  }

  // In an exchange the matrix's owner.
  int RootOf(const Op& op, const std::vector<int>& members) const {
    if (IsExchange(plan_, op)) return matrix_->owner;
    return op.root >= 0 ? members[op.root] : -1;
  }

  // The root of a broadcast has it already, also where it is given it again.
  bool Receives(const Op& op, const std::vector<int>& members, std::size_t place) const {
    const bool root = members[place] == RootOf(op, members);
    return TouchesOf(op, root, IsExchange(plan_, op)).writes_target &&
           !(root && op.kind == OpKind::kBroadcast);
  }

  absl::Status Move(const Op& op, const std::vector<int>& members) {
    std::int32_t value = 0;
    const bool from_owner = IsExchange(plan_, op) && op.kind == OpKind::kAllGather;
    switch (from_owner ? OpKind::kBroadcast : op.kind) {
      case OpKind::kAllReduce:
      case OpKind::kReduce:
      case OpKind::kReduceScatter:
        if (op.source == Slot::kNormSquares) return SumSquares(op, members);
        for (int rank : members) {
          const std::int32_t part = Value(ranks_[rank], op.source);
          if (part <= 0) return Fail(rank, "sums what is no gradient");
          WEFT_RETURN_IF_ERROR(CheckPass(op, rank));
          value += part;
        }
        break;
      case OpKind::kBroadcast:
      case OpKind::kScatter:
        value = Value(ranks_[RootOf(op, members)], op.source);
        break;
      default:
        value = Value(ranks_[members[0]], op.source);
        for (int rank : members) {
          if (Value(ranks_[rank], op.source) != value) {
            return Fail(rank, "gathers parts that are not of one kind");
          }
        }
    }
    for (std::size_t place = 0; place < members.size(); ++place) {
      if (!Receives(op, members, place)) continue;
      RankState& state = ranks_[members[place]];
      Value(state, op.target) = value;
      state.pass[static_cast<int>(op.target)] = op.pass;
    }
    return absl::OkStatus();
  }

  absl::Status SumSquares(const Op& op, const std::vector<int>& members) {
    if (!HoldAllRows(*matrix_, members)) return Fail(members[0], "sums squares of some rows");
    for (int rank : members) {
      std::int32_t& squares = Value(ranks_[rank], op.source);
      if (squares != kPartialSquares) return Fail(rank, "sums what are no squares");
      squares = kSquares;
    }
    return absl::OkStatus();
  }

  // Every rank's gradients are reduced once in each pass, in order, and nothing else with them.
  absl::Status CheckPass(const Op& op, int rank) {
    if (passes_ == 1) return absl::OkStatus();
    RankState& state = ranks_[rank];
    const bool submitted = op.source == Slot::kGradient;
    const std::int32_t due =
        submitted ? state.next_pass++ : state.pass[static_cast<int>(op.source)];
    if (op.pass == due) return absl::OkStatus();
    return Fail(rank, absl::StrCat("reduces the gradient of pass ", op.pass, " where that of pass ",
                                   due, submitted ? " is due" : " lies"));
  }

  // To the sum of the passes before comes that of the op's pass.
  absl::Status Accumulate(const Op& op, int rank) {
    RankState& state = ranks_[rank];
    std::int32_t& sum = Value(state, op.target);
    std::int32_t& last = state.pass[static_cast<int>(op.target)];
    if (Value(state, op.source) != World() || state.pass[static_cast<int>(op.source)] != op.pass) {
      return Fail(rank, absl::StrCat("does not get the gradient of pass ", op.pass));
    }
    if (op.pass == 0 || sum != op.pass * World() || last != op.pass - 1) {
      return Fail(rank, absl::StrCat("does not add to the sum of ", op.pass, " passes"));
    }
    sum += World();
    last = op.pass;
    return absl::OkStatus();
  }

  absl::Status Compute(const Op& op, int rank) {
    RankState& state = ranks_[rank];
    const std::int32_t source = Value(state, op.source);
    switch (op.kind) {
      case OpKind::kUse:
        if (source != kOldWeight) return Fail(rank, "does not get the weight");
        if (plan_.uses[op.use].layer != matrix_->layer) return Fail(rank, "is of another layer");
        ++uses_;
        return absl::OkStatus();
      case OpKind::kAccumulate:
        return Accumulate(op, rank);
      case OpKind::kCheckGradient:
        if (source != passes_ * World()) return Fail(rank, "checks a gradient that is not whole");
        checked_rows_ += extents_->Rows(op.source, rank);
        return absl::OkStatus();
      case OpKind::kMomentum:
        WEFT_RETURN_IF_ERROR(RunRule(rank, RuleKind::kMuon, source));
        Value(state, op.target) = kMomentumDone;
        return absl::OkStatus();
      case OpKind::kElementwise:
        WEFT_RETURN_IF_ERROR(RunRule(rank, RuleKind::kElementwise, source));
        return WriteWeight(op, rank);
      case OpKind::kCustom:
        WEFT_RETURN_IF_ERROR(RunRule(rank, RuleKind::kCustom, source));
        return WriteWeight(op, rank);
      case OpKind::kOrthogonalize:
        if (!refreshes_) return Fail(rank, "runs NS where a row norm is to be taken");
        if (source != kMomentumDone) return Fail(rank, "does not get a momentum");
        Value(state, op.target) = kDirectionDone;
        return absl::OkStatus();
      case OpKind::kNormSquares:
        if (source != kMomentumDone) return Fail(rank, "does not get a momentum");
        Value(state, op.target) = kPartialSquares;
        return absl::OkStatus();
      case OpKind::kRowNormBySquares:
        if (Value(state, Slot::kNormSquares) != kSquares) {
          return Fail(rank, "does not get the sums of all ranks");
        }
        [[fallthrough]];
      case OpKind::kRowNorm:
        if (refreshes_) return Fail(rank, "takes a row norm where NS is to run");
        if (source != kMomentumDone) return Fail(rank, "does not get a momentum");
        Value(state, op.target) = kDirectionDone;
        return absl::OkStatus();
      case OpKind::kApply:
        if (source != kDirectionDone) return Fail(rank, "does not get a direction");
        return WriteWeight(op, rank);
      default:
        if (source != kNewWeight) return Fail(rank, "does not get the new weight");
        Value(state, op.target) = kNewWeight;
        return op.target == Slot::kWeight ? CountWrite(rank) : absl::OkStatus();
    }
  }

  absl::Status RunRule(int rank, RuleKind rule, std::int32_t gradient) {
    if (rule != matrix_->rule) return Fail(rank, "is not of the matrix's rule");
    if (++ranks_[rank].rule_runs > 1) return Fail(rank, "updates the matrix a second time");
    if (gradient != passes_ * World()) {
      return Fail(rank, absl::StrCat("gets the sum of ", gradient, " gradients, not of ",
                                     passes_ * World()));
    }
    return absl::OkStatus();
  }

  absl::Status WriteWeight(const Op& op, int rank) {
    std::int32_t& weight = Value(ranks_[rank], op.target);
    if (weight == kNewWeight) return Fail(rank, "updates the weight a second time");
    if (weight != kOldWeight) return Fail(rank, "does not get the weight");
    weight = kNewWeight;
    return op.target == Slot::kWeight ? CountWrite(rank) : absl::OkStatus();
  }

  absl::Status CountWrite(int rank) {
    if (++ranks_[rank].weight_writes > 1) return Fail(rank, "writes the weight a second time");
    return absl::OkStatus();
  }

  const Plan& plan_;
  std::vector<RankState>& ranks_;
  const PlanMatrix* matrix_ = nullptr;
  bool refreshes_ = true;
  std::optional<SlotExtents> extents_;
  std::int32_t passes_ = 1;  // in each of which the gradient is reduced
  std::int64_t checked_rows_ = 0;
  std::int32_t piece_ = 0;    // of the op under way, the next; 0: none is under way
  const Op* last_ = nullptr;  // the piece before it
  std::int64_t uses_ = 0;     // on all ranks together
  std::int32_t index_ = -1;
};

}  // namespace

absl::Status CheckUpdates(const Plan& plan) {
  const std::vector<std::vector<std::int32_t>> ops = OpsByMatrix(plan);
  std::vector<RankState> ranks(plan.lanes.size());
  MatrixUpdate update(plan, ranks);
  for (std::size_t m = 0; m < ops.size(); ++m) {
    for (const bool refreshes : {true, false}) {
      if (!refreshes && plan.matrices[m].period == 1) continue;
      update.Begin(static_cast<std::int32_t>(m), refreshes);
      for (std::int32_t index : ops[m]) WEFT_RETURN_IF_ERROR(update.Visit(index));
      WEFT_RETURN_IF_ERROR(update.End());
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::scheduler
