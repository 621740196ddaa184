#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/access.h"
#include "scheduler/slots.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

using SlotMask = std::uint16_t;
static_assert(kSlotCount <= 16);

class MatrixExtents {
 public:
  MatrixExtents(const Plan& plan, std::int32_t matrix)
      : plan_(plan),
        matrix_(plan.matrices[matrix]),
        extents_(plan, matrix),
        touched_(plan.lanes.size()) {}

  absl::Status Run(const std::vector<std::int32_t>& ops) {
    for (std::int32_t index : ops) {
      Mark(plan_.ops[index]);
      WEFT_RETURN_IF_ERROR(CheckParts(index));
    }
    for (std::size_t rank = 0; rank < touched_.size(); ++rank) {
      for (int s = 0; s < kSlotCount; ++s) {
        const bool touched = (touched_[rank] >> s) & 1;
        const bool held =
            extents_.At(static_cast<Slot>(s), static_cast<int>(rank)) != Extent::kNothing;
        if (touched == held) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("plan: rank ", rank, touched ? " touches" : " never touches", " its ",
                         std::string(Name(static_cast<Slot>(s))), " of '", matrix_.name,
                         "', for which ", touched ? "it has no memory." : "it has memory."));
      }
    }
    return absl::OkStatus();
  }

 private:
  void Mark(const Op& op) {
    for (int rank : plan_.groups[op.group].ranks) {
      for (const Access& access : AccessesOf(op, rank)) {
        if (access.resource < kSlotCount) {
          touched_[rank] = static_cast<SlotMask>(touched_[rank] | (1u << access.resource));
        }
      }
    }
  }

  absl::Status CheckParts(std::int32_t index) const {
    const Op& op = plan_.ops[index];
    const std::vector<int>& members = plan_.groups[op.group].ranks;
    const auto source = [&](int rank) { return extents_.Rows(op.source, rank); };
    const auto target = [&](int rank) { return extents_.Rows(op.target, rank); };
    std::int64_t sources = 0, targets = 0;
    switch (op.kind) {
      case OpKind::kGather:
      case OpKind::kAllGather:
        for (int rank : members) sources += source(rank);
        for (int rank : members) {
          if (op.kind == OpKind::kGather && rank != op.root) continue;
          if (target(rank) != sources) return Mismatch(index, rank, sources, target(rank));
        }
        return CheckBytes(index, sources);
      case OpKind::kScatter:
      case OpKind::kReduceScatter:
        for (int rank : members) targets += target(rank);
        for (int rank : members) {
          if (op.kind == OpKind::kScatter && rank != op.root) continue;
          if (source(rank) != targets) return Mismatch(index, rank, source(rank), targets);
        }
        return CheckBytes(index, targets);
      case OpKind::kAllReduce:
      case OpKind::kReduce:
      case OpKind::kBroadcast:
        for (int rank : members) {
          const bool sends = op.kind != OpKind::kBroadcast || rank == op.root;
          const bool receives =
              op.kind == OpKind::kAllReduce || (rank == op.root) == (op.kind == OpKind::kReduce);
          if (sends && source(rank) != matrix_.rows) {
            return Mismatch(index, rank, source(rank), matrix_.rows);
          }
          if (receives && target(rank) != matrix_.rows) {
            return Mismatch(index, rank, matrix_.rows, target(rank));
          }
        }
        return CheckBytes(index, matrix_.rows);
      case OpKind::kOrthogonalize:
      case OpKind::kCustom:
        for (int rank : members) {
          if (source(rank) != matrix_.rows || target(rank) != matrix_.rows) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        return CheckBytes(index, 0);
      case OpKind::kApply:
        // A rank with a shard takes its own rows of a whole direction.
        for (int rank : members) {
          if (source(rank) != target(rank) && source(rank) != matrix_.rows) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        return CheckBytes(index, 0);
      case OpKind::kMomentum:
      case OpKind::kElementwise:
        for (int rank : members) {
          if (source(rank) != target(rank)) {
            return Mismatch(index, rank, source(rank), target(rank));
          }
        }
        return CheckBytes(index, 0);
      case OpKind::kCopyRows:
        for (int rank : members) {
          if (source(rank) != matrix_.rows) {
            return Mismatch(index, rank, source(rank), matrix_.rows);
          }
        }
        return CheckBytes(index, 0);
      case OpKind::kCheckGradient:
        return CheckBytes(index, 0);
      case OpKind::kVerdict:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status CheckBytes(std::int32_t index, std::int64_t rows) const {
    const Op& op = plan_.ops[index];
    const std::int64_t expected =
        rows * matrix_.cols * static_cast<std::int64_t>(SizeOf(SlotType(matrix_, op.source)));
    if (op.bytes == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("plan: ", DescribeOp(plan_, index), " carries ",
                                                   op.bytes, " bytes, not ", expected, "."));
  }

  absl::Status Mismatch(std::int32_t index, int rank, std::int64_t source,
                        std::int64_t target) const {
    return absl::InvalidArgumentError(absl::StrCat("plan: on rank ", rank, ", ",
                                                   DescribeOp(plan_, index), " goes from ", source,
                                                   " rows to ", target, "."));
  }

  const Plan& plan_;
  const PlanMatrix& matrix_;
  const SlotExtents extents_;
  std::vector<SlotMask> touched_;
};

}  // namespace

absl::Status CheckExtents(const Plan& plan) {
  const std::vector<std::vector<std::int32_t>> ops = OpsByMatrix(plan);
  for (std::size_t m = 0; m < ops.size(); ++m) {
    WEFT_RETURN_IF_ERROR(MatrixExtents(plan, static_cast<std::int32_t>(m)).Run(ops[m]));
  }
  return absl::OkStatus();
}

}  // namespace weft::scheduler
