#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "weft/cost_profile.h"

namespace weft {
namespace {

absl::Status Check(absl::Span<const LinkSample> samples) {
  bool several = false;
  for (const LinkSample& sample : samples) {
    if (sample.bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a link is fitted to a sample of ", sample.bytes, " bytes."));
    }
    if (!std::isfinite(sample.seconds) || sample.seconds <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("a link is fitted to ", sample.bytes,
                                                     " bytes in ", sample.seconds,
                                                     " seconds, which is no time."));
    }
    several = several || sample.bytes != samples.front().bytes;
  }
  if (several) return absl::OkStatus();
  return absl::InvalidArgumentError("a link is fitted to samples of at least two sizes.");
}

// seconds = at_zero + per_byte * bytes.
struct Line {
  double at_zero = 0;
  double per_byte = 0;
};

// The mean of `value` with weights in proportion to 1 / seconds^2.
template <typename Value>
double WeightedMean(absl::Span<const LinkSample> samples, Value value) {
  double least = samples.front().seconds;
  for (const LinkSample& sample : samples) least = std::min(least, sample.seconds);
  double sum = 0, weights = 0;
  for (const LinkSample& sample : samples) {
    const double weight = (least / sample.seconds) * (least / sample.seconds);
    sum += weight * value(sample);
    weights += weight;
  }
  return sum / weights;
}

double Bytes(const LinkSample& sample) { return static_cast<double>(sample.bytes); }

}  // namespace

double LinkFit::Seconds(double bytes) const {
  return latency_us * 1e-6 + (gigabytes_per_second > 0 ? bytes / (gigabytes_per_second * 1e9) : 0);
}

absl::StatusOr<LinkFit> FitLink(absl::Span<const LinkSample> samples) {
  if (const absl::Status status = Check(samples); !status.ok()) return status;
  const double bytes = WeightedMean(samples, Bytes);
  const double seconds = WeightedMean(samples, [](const LinkSample& s) { return s.seconds; });
  const double covariance = WeightedMean(
      samples, [&](const LinkSample& s) { return (Bytes(s) - bytes) * (s.seconds - seconds); });
  const double variance = WeightedMean(
      samples, [&](const LinkSample& s) { return (Bytes(s) - bytes) * (Bytes(s) - bytes); });
  Line line;
  line.per_byte = covariance / variance;
  line.at_zero = seconds - line.per_byte * bytes;
  // The sum of squares is convex: where its least value is outside, that of the allowed quadrant is
  // on the edge that was crossed. No sample has a negative size, so only one of the two is.
  if (line.per_byte < 0) {
    line = {seconds, 0};
  } else if (line.at_zero < 0) {
    const double products =
        WeightedMean(samples, [](const LinkSample& s) { return Bytes(s) * s.seconds; });
    const double squares =
        WeightedMean(samples, [](const LinkSample& s) { return Bytes(s) * Bytes(s); });
    line = {0, products / squares};
  }
  LinkFit fit;
  fit.latency_us = line.at_zero * 1e6;
  const double rate = 1e-9 / line.per_byte;
  if (line.per_byte > 0 && std::isfinite(rate)) fit.gigabytes_per_second = rate;
  double squares = 0;
  for (const LinkSample& sample : samples) {
    const double residual = std::abs(fit.Seconds(Bytes(sample)) / sample.seconds - 1);
    fit.max_residual = std::max(fit.max_residual, residual);
    squares += residual * residual;
  }
  fit.rms_residual = std::sqrt(squares / static_cast<double>(samples.size()));
  return fit;
}

}  // namespace weft
