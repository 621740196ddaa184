#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/access.h"
#include "scheduler/buffers.h"
#include "scheduler/slots.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

class MatrixExtents {
 public:
  // `carried` has an entry per op: the bytes that collectives have been found to carry.
  MatrixExtents(const Plan& plan, std::int32_t matrix, std::vector<std::int64_t>& carried)
      : plan_(plan),
        matrix_(plan.matrices[matrix]),
        extents_(plan, matrix),
        touched_(plan.lanes.size()),
        carried_(carried) {}

  absl::Status Run(const std::vector<std::int32_t>& ops) {
    for (std::int32_t index : ops) {
      Mark(plan_.ops[index]);
      for (const std::vector<int>& part : plan_.groups[plan_.ops[index].group].parts) {
        WEFT_RETURN_IF_ERROR(CheckPart(index, part));
      }
      carried_[index] += most_rows_ * RowBytes(plan_.ops[index].source);
      most_rows_ = 0;
    }
    for (std::size_t rank = 0; rank < touched_.size(); ++rank) {
      const SlotMask held = extents_.Held(static_cast<int>(rank));
      if (touched_[rank] == held) continue;
      for (int s = 0; s < kSlotCount; ++s) {
        const bool touched = (touched_[rank] >> s) & 1;
        if (touched == ((held >> s) & 1)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("plan: rank ", rank, touched ? " touches" : " never touches", " its ",
                         std::string(Name(static_cast<Slot>(s))), " of '", matrix_.name,
                         "', for which ", touched ? "it has no memory." : "it has memory."));
      }
    }
    return absl::OkStatus();
  }

 private:
  std::int64_t RowBytes(Slot slot) const {
    return matrix_.cols * static_cast<std::int64_t>(SizeOf(SlotType(matrix_, slot)));
  }

  void Mark(const Op& op) {
    for (const std::vector<int>& part : plan_.groups[op.group].parts) {
      for (std::size_t place = 0; place < part.size(); ++place) {
        const bool exchange = IsExchange(plan_, op);
        const bool root =
            exchange ? part[place] == matrix_.owner : static_cast<std::int32_t>(place) == op.root;
        const Touches touches = TouchesOf(op, root, exchange);
        SlotMask& mask = touched_[part[place]];
        if (touches.reads_source) mask |= BitOf(op.source);
        if (touches.writes_target) mask |= BitOf(op.target);
        if (touches.reads_squares) mask |= BitOf(Slot::kNormSquares);
      }
    }
  }

  absl::Status CheckPart(std::int32_t index, const std::vector<int>& members) {
    const Op& op = plan_.ops[index];
    const bool exchange = IsExchange(plan_, op);
    const int root = exchange ? matrix_.owner : op.root >= 0 ? members[op.root] : -1;
    const auto source = [&](int rank) { return extents_.Rows(op.source, rank); };
    const auto target = [&](int rank) { return extents_.Rows(op.target, rank); };
    std::int64_t sources = 0, targets = 0;
    const auto holds_shards = [&](Slot slot) {
      return extents_.At(slot, root >= 0 ? root : members[0]) == Extent::kShard;
    };
    if (exchange && (op.kind == OpKind::kReduceScatter || op.kind == OpKind::kAllGather)) {
      // Whole matrices, to or from their owners.
      for (int rank : members) {
        const Touches touches = TouchesOf(op, rank == root, exchange);
        const bool sends = !touches.reads_source || source(rank) == matrix_.rows;
        const bool receives = !touches.writes_target || target(rank) == matrix_.rows;
        if (!sends || !receives) return Mismatch(index, rank, source(rank), target(rank));
      }
      return Carries(matrix_.rows);
    }
    switch (op.kind) {
      case OpKind::kGather:
      case OpKind::kAllGather:
        for (int rank : members) sources += source(rank);
        for (int rank : members) {
          if (op.kind == OpKind::kGather && rank != root) continue;
          if (target(rank) != sources) return Mismatch(index, rank, sources, target(rank));
        }
        if (holds_shards(op.source) && !HoldRowsInOrder(matrix_, members)) {
          return Disorder(index, members[0]);
        }
        return Carries(sources);
      case OpKind::kScatter:
      case OpKind::kReduceScatter:
        for (int rank : members) targets += target(rank);
        for (int rank : members) {
          if (op.kind == OpKind::kScatter && rank != root) continue;
          // Rows of ranks that follow one another, as a node's, may lie in the whole.
          const bool adjacent =
              members.back() - members.front() + 1 == static_cast<int>(members.size());
          const bool in_whole =
              op.kind == OpKind::kScatter && adjacent && source(rank) == matrix_.rows;
          if (source(rank) != targets && !in_whole) {
            return Mismatch(index, rank, source(rank), targets);
          }
        }
        if (holds_shards(op.target) && !HoldRowsInOrder(matrix_, members)) {
          return Disorder(index, members[0]);
        }
        return Carries(targets);
      case OpKind::kAllReduce:
      case OpKind::kReduce:
      case OpKind::kBroadcast: {
        // Of one block of rows, if not of all.
        const bool replicas =
            HasReplicas(matrix_) && holds_shards(op.source) && AreReplicas(matrix_, members);
        const std::int64_t whole =
            replicas ? ShardRows(matrix_, members[0]) : WholeRows(matrix_, op.source);
        for (int rank : members) {
          const bool sends = op.kind != OpKind::kBroadcast || rank == root;
          const bool receives =
              op.kind == OpKind::kAllReduce || (rank == root) == (op.kind == OpKind::kReduce);
          if (sends && source(rank) != whole) return Mismatch(index, rank, source(rank), whole);
          if (receives && target(rank) != whole) return Mismatch(index, rank, whole, target(rank));
        }
        return Carries(whole);
      }
      case OpKind::kOrthogonalize:
      case OpKind::kCustom:
        for (int rank : members) {
          if (source(rank) != matrix_.rows || target(rank) != matrix_.rows) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        break;
      case OpKind::kApply:
      case OpKind::kCopyRows:
        // A rank with a shard takes its own rows of what is whole.
        for (int rank : members) {
          if (source(rank) != target(rank) && source(rank) != matrix_.rows) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        break;
      case OpKind::kNormSquares:
        for (int rank : members) {
          if (target(rank) != matrix_.norm_vectors) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        break;
      case OpKind::kRowNorm:
        // Of shards every row of a norm must be whole.
        for (int rank : members) {
          if (source(rank) != target(rank) ||
              (matrix_.norm_vectors > 0 && source(rank) != matrix_.rows)) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        break;
      case OpKind::kRowNormBySquares:
      case OpKind::kAccumulate:
      case OpKind::kMomentum:
      case OpKind::kElementwise:
        for (int rank : members) {
          if (source(rank) != target(rank)) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        break;
      case OpKind::kUse:
        for (int rank : members) {
          if (source(rank) != matrix_.rows) {
            return Mismatch(index, rank, source(rank), matrix_.rows);
          }
        }
        break;
      case OpKind::kCheckGradient:
      case OpKind::kVerdict:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status Carries(std::int64_t rows) {
    most_rows_ = std::max(most_rows_, rows);
    return absl::OkStatus();
  }

  absl::Status Mismatch(std::int32_t index, int rank, std::int64_t source,
                        std::int64_t target) const {
    return absl::InvalidArgumentError(absl::StrCat("plan: on rank ", rank, ", ",
                                                   DescribeOp(plan_, index, rank), " goes from ",
                                                   source, " rows to ", target, "."));
  }

  absl::Status Disorder(std::int32_t index, int rank) const {
    return InvalidPlan("on rank ", rank, ", ", DescribeOp(plan_, index, rank),
                       " is of blocks of rows that do not follow one another");
  }

  const Plan& plan_;
  const PlanMatrix& matrix_;
  const SlotExtents extents_;
  std::vector<SlotMask> touched_;
  std::vector<std::int64_t>& carried_;
  std::int64_t most_rows_ = 0;  // that a part of the op carries
};

}  // namespace

absl::Status CheckExtents(const Plan& plan) {
  const std::vector<std::vector<std::int32_t>> ops = OpsByMatrix(plan);
  std::vector<std::int64_t> carried(plan.ops.size());
  for (std::size_t m = 0; m < ops.size(); ++m) {
    WEFT_RETURN_IF_ERROR(MatrixExtents(plan, static_cast<std::int32_t>(m), carried).Run(ops[m]));
  }
  for (std::size_t i = 0; i < carried.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind == OpKind::kVerdict) continue;
    const auto width =
        static_cast<std::int64_t>(SizeOf(SlotType(plan.matrices[op.matrix], op.source)));
    const std::int64_t bytes = PieceOf(carried[i] / width, op).count * width;
    if (op.bytes == bytes) continue;
    return InvalidPlan(DescribeOp(plan, static_cast<std::int32_t>(i)), " carries ", op.bytes,
                       " bytes, not ", bytes);
  }
  return absl::OkStatus();
}

}  // namespace weft::scheduler
