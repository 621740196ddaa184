// How a kind of collective moves its payload.
#pragma once

#include "base/link_cost.h"
#include "weft/plan_kinds.h"

namespace weft::scheduler {

inline base::Pattern PatternOf(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
    case OpKind::kVerdict:
      return base::Pattern::kAllReduce;
    case OpKind::kReduce:
    case OpKind::kBroadcast:
      return base::Pattern::kRooted;
    case OpKind::kGather:
    case OpKind::kScatter:
      return base::Pattern::kParts;
    default:
      return base::Pattern::kScattered;
  }
}

}  // namespace weft::scheduler
