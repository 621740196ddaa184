#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "weft/update.h"

namespace weft {
namespace {

absl::Status Range(const char* name, double value, double low, double high) {
  if (value >= low && value < high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", not in [", low, ", ", high, ")"));
}

// What keeps a division from being one by zero must still be there in fp32, in which it is done.
absl::Status Divisor(const char* name, double value) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (value >= kLeast && value <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", not a positive normal number of fp32"));
}

absl::Status NotNegative(const char* name, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", not a number >= 0"));
}

}  // namespace

double ScaleFactor(Scale scale, std::int64_t rows, std::int64_t cols) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(cols);
  if (scale == Scale::kMatchRmsAdamW) return 0.2 * std::sqrt(std::max(r, c));
  return cols > 0 ? std::sqrt(std::max(1.0, r / c)) : 1.0;
}

absl::Status Validate(const NewtonSchulzOptions& options) {
  if (options.iterations < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("iterations is ", options.iterations, ", not at least 1"));
  }
  if (options.iterations > kMostNewtonSchulzIterations) {
    return absl::InvalidArgumentError(absl::StrCat("iterations is ", options.iterations,
                                                   ", more than the ", kMostNewtonSchulzIterations,
                                                   " supported"));
  }
  if (!IsDType(options.operand_type)) {
    return absl::InvalidArgumentError("operand_type has a value that names nothing");
  }
  if (options.coefficients.triples.empty()) {
    return absl::InvalidArgumentError("coefficients has no triples");
  }
  for (const Triple& t : options.coefficients.triples) {
    if (!std::isfinite(t.a) || !std::isfinite(t.b) || !std::isfinite(t.c)) {
      return absl::InvalidArgumentError("coefficients has a number that is not finite");
    }
  }
  WEFT_RETURN_IF_ERROR(options.clamp_to_floor ? Divisor("norm_floor", options.norm_floor)
                                              : NotNegative("norm_floor", options.norm_floor));
  if (options.segments.empty() || options.segments == std::vector<int>{0}) {
    return absl::OkStatus();
  }
  std::int64_t sum = 0;
  for (const int length : options.segments) {
    sum += length;
    if (length < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "segments [", absl::StrJoin(options.segments, ","), "] has a length below 1"));
    }
  }
  if (sum != options.iterations) {
    return absl::InvalidArgumentError(
        absl::StrCat("segments [", absl::StrJoin(options.segments, ","), "] add up to ", sum,
                     ", not to the ", options.iterations, " iterations"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const MuonOptions& options) {
  WEFT_RETURN_IF_ERROR(NotNegative("lr", options.lr));
  WEFT_RETURN_IF_ERROR(Range("momentum", options.momentum, 0, 1));
  WEFT_RETURN_IF_ERROR(NotNegative("weight_decay", options.weight_decay));
  if (options.scale != Scale::kOriginal && options.scale != Scale::kMatchRmsAdamW) {
    return absl::InvalidArgumentError("scale has a value that names nothing");
  }
  const PeriodicOptions& periodic = options.periodic;
  if (periodic.period < 1 || periodic.period > kMostPeriod) {
    return absl::InvalidArgumentError(
        absl::StrCat("periodic.period is ", periodic.period, ", not 1 to ", kMostPeriod));
  }
  WEFT_RETURN_IF_ERROR(NotNegative("periodic.gamma", periodic.gamma));
  // Squares of norms relative to eps stay inside fp32's range (op_issuer.cc).
  if (!(periodic.eps >= 1e-20 && periodic.eps <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("periodic.eps is ", periodic.eps, ", not 1e-20 to 1"));
  }
  return Validate(options.newton_schulz);
}

absl::Status Validate(const AdamWOptions& options) {
  WEFT_RETURN_IF_ERROR(NotNegative("lr", options.lr));
  WEFT_RETURN_IF_ERROR(Range("beta1", options.beta1, 0, 1));
  WEFT_RETURN_IF_ERROR(Range("beta2", options.beta2, 0, 1));
  WEFT_RETURN_IF_ERROR(Divisor("eps", options.eps));
  return NotNegative("weight_decay", options.weight_decay);
}

}  // namespace weft
