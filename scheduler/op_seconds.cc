#include "scheduler/op_seconds.h"

namespace weft::scheduler {

double OpSeconds::Of(std::int32_t op, int rank) {
  const Op& what = plan_.ops[op];
  if (what.kind == OpKind::kVerdict) return 0;
  if (what.kind != OpKind::kOrthogonalize && what.kind != OpKind::kCustom) {
    return Memory(what, rank);
  }
  if (rules_[op] < 0) rules_[op] = Rule(what);
  return rules_[op];
}

double OpSeconds::Rule(const Op& op) const {
  const auto matrices = MatricesOf(plan_, op);
  const PlanMatrix& matrix = plan_.matrices[matrices[0]];
  const std::optional<OwnedWork>* const known = work_.empty() ? nullptr : &work_[matrices[0]];
  ComputeWork work;
  int parts = 1;
  if (known != nullptr && known->has_value()) {
    work = (*known)->work;
    parts = (*known)->parts;
  } else {
    work.shape = {ComputeKind::kNewtonSchulz, matrix.rows, matrix.cols, matrix.dtype, ""};
    work.flops = matrix.flops;
    work.launches = 1;
  }
  return model_.Compute(work, parts * static_cast<int>(matrices.size())).seconds;
}

// At the rate of a row norm, which is bound by memory: three FLOPs for twelve bytes
// (RowNormWork()).
double OpSeconds::Memory(const Op& op, int rank) const {
  double elements = 0, bytes = 0;
  for (const std::int32_t m : MatricesOf(plan_, op)) {
    const PlanMatrix& matrix = plan_.matrices[m];
    const auto stored = static_cast<double>(SizeOf(matrix.dtype));
    // What is read and written of each element; results in between are fp32.
    double each = 0;
    Slot slot = op.target;
    switch (op.kind) {
      case OpKind::kMomentum:
        each = stored + 3 * 4;
        break;
      case OpKind::kRowNorm:
        each = 3 * 4;  // read for the norms, read and written for the result
        break;
      case OpKind::kRowNormBySquares:
        each = 2 * 4;
        break;
      case OpKind::kNormSquares:
        each = 4;
        slot = op.source;
        break;
      case OpKind::kApply:
        each = 4 + 2 * stored;
        break;
      case OpKind::kElementwise:
        each = 3 * stored + 2 * static_cast<double>(matrix.state_bytes_per_element);
        break;
      case OpKind::kCheckGradient:
        each = stored;
        slot = op.source;
        break;
      case OpKind::kAccumulate:
        each = 3 * stored;
        break;
      default:
        each = 2 * stored;
        break;
    }
    const double here =
        static_cast<double>(SlotRows(plan_, m, slot, rank)) * static_cast<double>(matrix.cols);
    elements += here;
    bytes += here * each;
  }
  if (elements <= 0) return 0;
  ComputeWork work;
  // No measured shape is meant.
  work.shape = {ComputeKind::kRowNorm, 1, static_cast<std::int64_t>(elements), DType::kF32,
                "memory"};
  work.flops = bytes / 4;
  work.bytes = bytes;
  work.launches = 1;
  return model_.Compute(work, 1).seconds;
}

}  // namespace weft::scheduler
