// How long ops of the compute lane take alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "weft/cost_model.h"
#include "weft/plan.h"

namespace weft::scheduler {

class OpSeconds {
 public:
  // All outlive this. `work` is empty or has an entry per matrix.
  OpSeconds(const Plan& plan, const CostModel& model,
            absl::Span<const std::optional<OwnedWork>> work)
      : plan_(plan), model_(model), work_(work), rules_(plan.ops.size(), -1) {}

  // Of an op that is neither a collective nor a use, on a rank that runs it.
  double Of(std::int32_t op, int rank);

 private:
  double Rule(const Op& op) const;
  double Memory(const Op& op, int rank) const;

  const Plan& plan_;
  const CostModel& model_;
  const absl::Span<const std::optional<OwnedWork>> work_;
  std::vector<double> rules_;  // by op, of whole matrices; -1: not asked yet
};

}  // namespace weft::scheduler
