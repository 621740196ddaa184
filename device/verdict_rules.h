// The conclusions from the reduced numbers of a step (weft/verdict.h), matrix by matrix. The
// runtime draws them again from a copy, to say in words what was decided.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/host_device.h"
#include "weft/verdict.h"

namespace weft::device {

// The numbers of one matrix among a step's values, and the tail behind those of all `matrices`.
template <typename Float>
WEFT_HD Float* ValuesOf(Float* values, std::int64_t matrix) {
  return values + matrix * kVerdictValueCount;
}
template <typename Float>
WEFT_HD Float* TailOf(Float* values, std::int64_t matrices) {
  return ValuesOf(values, matrices);
}

// Whether the norm, and so the gradient, is finite; false for NaN. In double the square of one that
// fits fp32 does not overflow.
WEFT_HD inline bool IsFiniteNorm(double norm) { return norm * norm < HUGE_VAL; }

enum class Refusal : std::uint8_t { kNone, kMissing, kPartlyReduced, kLr, kDecay, kNonFinite };

// Why a matrix keeps the step from changing anything, if it does. `own` are its numbers.
WEFT_HD inline Refusal RefusalOf(const float* own, bool reduced, const VerdictRules& rules) {
  if (own[kVerdictGradient] >= kGradientMissing) return Refusal::kMissing;
  // Zeros are a rank's share of a sum; of a gradient that is already summed they are another value.
  if (reduced && own[kVerdictGradient] == kGradientPresent && own[kVerdictLacks] == 0) {
    return Refusal::kPartlyReduced;
  }
  if (own[kVerdictLr] != -own[kVerdictMinusLr]) return Refusal::kLr;
  if (own[kVerdictDecay] != -own[kVerdictMinusDecay]) return Refusal::kDecay;
  if (rules.non_finite_is_error && own[kVerdictNonFinite] > 0) return Refusal::kNonFinite;
  return Refusal::kNone;
}

WEFT_HD inline bool ScalesAgree(const float* tail) {
  return tail[kVerdictScale] == -tail[kVerdictMinusScale];
}

// Whether the matrix is left as it is, in a step that is not left alone as a whole.
WEFT_HD inline bool LeavesAlone(const float* own, const VerdictRules& rules) {
  const bool absent = rules.missing_skips && own[kVerdictGradient] != kGradientPresent;
  return absent || own[kVerdictNonFinite] > 0;
}

// Whether the matrix makes the step change nothing.
WEFT_HD inline bool StopsStep(const float* own, bool reduced, const VerdictRules& rules) {
  return RefusalOf(own, reduced, rules) != Refusal::kNone ||
         (rules.non_finite_skips_step && own[kVerdictNonFinite] > 0);
}

// Norm of all gradients together, a loss scale undone.
WEFT_HD inline double GradientNorm(const float* tail, std::int32_t ranks) {
  double square = 0;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const double part = tail[kVerdictNorms + rank];
    square += part * part;
  }
  return std::sqrt(square) / tail[kVerdictScale];
}

// min(1, most / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
WEFT_HD inline double ClipFactor(double norm, double most) {
  if (!(most > 0)) return 1;
  const double factor = most / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

// What gradients are multiplied by.
WEFT_HD inline float GradientFactor(const float* tail, double clip_factor) {
  return static_cast<float>(clip_factor / tail[kVerdictScale]);
}

}  // namespace weft::device
