// What one op reads and writes on one rank: the ground that dependencies are derived from and
// checked against.
#pragma once

#include <cstdint>

#include "weft/plan.h"

namespace weft::scheduler {

// A slot, or something that is no buffer of the plan but has to be accessed in order all the same.
using Resource = int;
inline constexpr Resource kStateResource = kSlotCount;        // the rule's state of the matrix
inline constexpr Resource kVerdictResource = kSlotCount + 1;  // one per rank, not per matrix
inline constexpr Resource kCheckResource = kSlotCount + 2;    // one per rank: the checks' results
inline constexpr Resource kPortResource = kSlotCount + 3;     // one per rank: its one collective

struct Access {
  std::int32_t matrix = -1;  // -1 for what there is one of per rank
  Resource resource = 0;
  bool reads = false;
  bool writes = false;
};

inline bool IsRooted(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kBroadcast || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

// A collective of an exchange. Of each of its matrices the owner is the root.
inline bool IsExchange(const Plan& plan, const Op& op) {
  return op.set >= 0 && IsCollective(op.kind) && plan.matrices[op.matrix].exchange == op.set;
}

// How an op touches its source, its target and the rule's state, on a rank that is the root
// of its part or not.
struct Touches {
  bool reads_source = false;
  bool reads_target = false;
  bool writes_target = false;
  bool updates_state = false;
  bool reads_squares = false;  // kNormSquares of the matrix, beside its source
};
inline Touches TouchesOf(const Op& op, bool root, bool exchange = false) {
  if (exchange && op.kind == OpKind::kReduceScatter) {
    return {.reads_source = true, .writes_target = root};
  }
  if (exchange && op.kind == OpKind::kAllGather) {
    return {.reads_source = root, .writes_target = !root};
  }
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kOrthogonalize:
    case OpKind::kRowNorm:
    case OpKind::kNormSquares:
    case OpKind::kCopyRows:
      return {.reads_source = true, .writes_target = true};
    case OpKind::kReduce:
    case OpKind::kGather:
      return {.reads_source = true, .writes_target = root};
    case OpKind::kBroadcast:
      // In parts, the all-gather gives the root its own again.
      return {.reads_source = root, .writes_target = !root || op.form == CollectiveForm::kSplit};
    case OpKind::kScatter:
      return {.reads_source = root, .writes_target = true};
    case OpKind::kVerdict:
      return {};
    case OpKind::kCheckGradient:
    case OpKind::kUse:
      return {.reads_source = true};
    case OpKind::kMomentum:
      return {.reads_source = true, .writes_target = true, .updates_state = true};
    case OpKind::kRowNormBySquares:
      return {.reads_source = true, .writes_target = true, .reads_squares = true};
    case OpKind::kAccumulate:
    case OpKind::kApply:
      return {.reads_source = true, .reads_target = true, .writes_target = true};
    case OpKind::kElementwise:
    case OpKind::kCustom:
      return {
          .reads_source = true, .reads_target = true, .writes_target = true, .updates_state = true};
  }
  return {};
}

// Calls visit(Access) for everything that `op` touches on a member of its group, which is_root(m)
// says to be the root for matrix m or not. Whatever runs once the step is closed reads the verdict:
// it forbids writes of weights and state, and tells how every later stage of a job has come out.
template <typename IsRootOf, typename Visit>
void ForEachAccess(const Plan& plan, const Op& op, const IsRootOf& is_root, const Visit& visit) {
  const bool exchange = IsExchange(plan, op);
  for (const std::int32_t matrix : MatricesOf(plan, op)) {
    const Touches touches = TouchesOf(op, is_root(matrix), exchange);
    if (touches.reads_source) {
      visit(Access{matrix, static_cast<Resource>(op.source), true, false});
    }
    if (touches.writes_target) {
      visit(Access{matrix, static_cast<Resource>(op.target), touches.reads_target, true});
    }
    if (touches.reads_squares) {
      visit(Access{matrix, static_cast<Resource>(Slot::kNormSquares), true, false});
    }
    if (touches.updates_state) visit(Access{matrix, kStateResource, true, true});
  }
  if (op.kind == OpKind::kVerdict) {
    visit(Access{-1, kCheckResource, true, false});
    visit(Access{-1, kVerdictResource, false, true});
  } else if (op.trigger == Trigger::kStepClosed) {
    visit(Access{-1, kVerdictResource, true, false});
  }
  if (op.kind == OpKind::kCheckGradient) visit(Access{-1, kCheckResource, false, true});
  if (plan.limits.collectives_in_flight == 1 && IsCollective(op.kind)) {
    visit(Access{-1, kPortResource, false, true});
  }
}

// Where a resource lies in an array of all resources of `matrices` matrices.
inline std::size_t ResourceIndex(const Access& access) {
  if (access.matrix < 0) return access.resource - kVerdictResource;
  return 3 + static_cast<std::size_t>(access.matrix) * (kSlotCount + 1) + access.resource;
}
// Its inverse, but for how the resource is accessed.
inline Access AccessAt(std::size_t index) {
  if (index < 3) return {.resource = static_cast<Resource>(index) + kVerdictResource};
  return {.matrix = static_cast<std::int32_t>((index - 3) / (kSlotCount + 1)),
          .resource = static_cast<Resource>((index - 3) % (kSlotCount + 1))};
}
inline std::size_t ResourceArraySize(std::size_t matrices) {
  return 3 + matrices * (kSlotCount + 1);
}

}  // namespace weft::scheduler
