// What the ranks decide about a step before it touches any state, as numbers in device memory: each
// rank states what it knows, the ranks reduce the numbers (max), and all draw the same conclusions.
#pragma once

#include <cstdint>

#include "weft/math.h"

#pragma GCC visibility push(default)
namespace weft {

// The numbers of one matrix. Of a rate both signs are reduced: their largest show whether all ranks
// mean the same.
enum VerdictValue : int {
  kVerdictGradient,  // kGradientNothing, kGradientPresent, or kGradientMissing plus the rank
  kVerdictLr,
  kVerdictMinusLr,
  kVerdictDecay,
  kVerdictMinusDecay,
  kVerdictLacks,      // -1 from ranks that do not lack a gradient, else 0
  kVerdictNonFinite,  // 0, or 1 plus the rank that saw it
  kVerdictValueCount
};
// Ranks are exact in fp32 for worlds up to 2^24.
inline constexpr float kGradientNothing = 0;  // no gradient, and that is allowed
inline constexpr float kGradientPresent = 1;
inline constexpr float kGradientMissing = 2;

// Behind those of all matrices: the loss scale with both signs, and a norm per rank.
enum VerdictTail : int { kVerdictScale, kVerdictMinusScale, kVerdictNorms };

struct VerdictRules {
  bool missing_skips = false;  // a matrix without a gradient on any rank is left alone
  bool non_finite_is_error = false;
  bool non_finite_skips_step = false;  // otherwise the matrix alone
  double max_gradient_norm = 0;        // 0: no clipping
};

// All pointers are device memory.
struct VerdictArguments {
  std::int32_t matrices = 0;
  std::int32_t ranks = 1;
  std::int32_t rank = 0;
  VerdictRules rules;
  // The matrices whose norm this rank has taken, and the norms by matrix.
  const std::int32_t* checked = nullptr;
  std::int32_t checked_count = 0;
  const float* norms = nullptr;
  // By matrix, 1 where its gradient comes reduced.
  const std::uint8_t* reduced = nullptr;
  // kVerdictValueCount per matrix, then the tail.
  float* values = nullptr;
  StepControl* controls = nullptr;  // by matrix
};

}  // namespace weft
#pragma GCC visibility pop
