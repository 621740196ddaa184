// The kernels of a step's verdict (Math::Tally, Math::Decide), a block each.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/cuda/kernels_vector.h"
#include "device/host_device.h"
#include "device/verdict_rules.h"
#include "weft/verdict.h"

namespace weft::device {

struct TallyNorms {
  VerdictArguments arguments;

  std::int64_t Blocks() const { return 1; }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t) const {
    const double sum = block.Sum(arguments.checked_count, [&](std::int64_t i) {
      const double norm = arguments.norms[arguments.checked[i]];
      return IsFiniteNorm(norm) ? norm * norm : 0.0;
    });
    block.ForEach(arguments.checked_count, [&](std::int64_t i) {
      const std::int64_t matrix = arguments.checked[i];
      if (IsFiniteNorm(arguments.norms[matrix])) return;
      ValuesOf(arguments.values, matrix)[kVerdictNonFinite] =
          1 + static_cast<float>(arguments.rank);
    });
    block.ForEach(1, [&](std::int64_t) { OwnNorm()[0] = static_cast<float>(std::sqrt(sum)); });
  }

  // Looks at `checked`, which is written once and before.
  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(visit, arguments.checked, arguments.checked_count, false);
    for (std::int32_t i = 0; i < arguments.checked_count; ++i) {
      const std::int64_t matrix = arguments.checked[i];
      VisitVector(visit, arguments.norms + matrix, 1, false);
      VisitVector(visit, ValuesOf(arguments.values, matrix) + kVerdictNonFinite, 1, true);
    }
    VisitVector(visit, OwnNorm(), 1, true);
  }

  WEFT_HD float* OwnNorm() const {
    return TailOf(arguments.values, arguments.matrices) + kVerdictNorms + arguments.rank;
  }
};

struct DecideStep {
  VerdictArguments arguments;

  std::int64_t Blocks() const { return 1; }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t) const {
    const VerdictRules& rules = arguments.rules;
    const float* tail = TailOf(arguments.values, arguments.matrices);
    const double against = block.Sum(arguments.matrices, [&](std::int64_t m) {
      return StopsStep(ValuesOf(arguments.values, m), arguments.reduced[m] != 0, rules) ? 1.0 : 0.0;
    });
    const bool stops = !ScalesAgree(tail) || against > 0;
    const double norm = GradientNorm(tail, arguments.ranks);
    const float factor = GradientFactor(tail, ClipFactor(norm, rules.max_gradient_norm));
    block.ForEach(arguments.matrices, [&](std::int64_t m) {
      const bool skip = stops || LeavesAlone(ValuesOf(arguments.values, m), rules);
      arguments.controls[m].skip = skip ? 1.0f : 0.0f;
      arguments.controls[m].gradient_factor = factor;
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(
        visit, arguments.values,
        std::int64_t{arguments.matrices} * kVerdictValueCount + kVerdictNorms + arguments.ranks,
        false);
    VisitVector(visit, arguments.reduced, arguments.matrices, false);
    VisitVector(visit, arguments.controls, arguments.matrices, true);
  }
};

}  // namespace weft::device
