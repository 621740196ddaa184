#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/cost_profile.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::vector<std::int64_t> DrawSizes() {
  std::set<std::int64_t> sizes;
  while (sizes.size() < 2) sizes.insert(std::int64_t{1} << *testing::Evenly(4, 28));
  for (int i = *testing::Evenly(0, 7); i > 0; --i) {
    sizes.insert(*testing::Evenly<std::int64_t>(0, 100'000'000));
  }
  return {sizes.begin(), sizes.end()};
}

double Objective(const std::vector<LinkSample>& samples, double seconds, double per_byte) {
  double sum = 0;
  for (const LinkSample& s : samples) {
    sum += std::pow((seconds + per_byte * static_cast<double>(s.bytes)) / s.seconds - 1, 2);
  }
  return sum;
}

double PerByte(const LinkFit& fit) {
  return fit.gigabytes_per_second > 0 ? 1e-9 / fit.gigabytes_per_second : 0;
}

// The least objective by cyclic exact minimization of each coordinate, which for a convex
// quadratic over a quadrant ends at the optimum.
double ReferenceObjective(const std::vector<LinkSample>& samples) {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;  // u = 1 / seconds, v = bytes / seconds
  for (const LinkSample& s : samples) {
    const double a = 1 / s.seconds, b = static_cast<double>(s.bytes) / s.seconds;
    uu += a * a, uv += a * b, vv += b * b, u += a, v += b;
  }
  double x = 0, y = 0;
  for (int i = 0; i < 20000; ++i) {
    x = std::max(0.0, (u - uv * y) / uu);
    y = std::max(0.0, (v - uv * x) / vv);
  }
  return Objective(samples, x, y);
}

RC_GTEST_PROP(FitLink, FindsAnExactLink, ()) {
  const LinkFit link = {*testing::Evenly(0, 1000) / 7.0, *testing::Evenly(1, 1000) / 9.0};
  std::vector<LinkSample> samples;
  for (const std::int64_t bytes : DrawSizes()) {
    // A time is positive.
    if (bytes == 0 && link.latency_us == 0) continue;
    samples.push_back({bytes, link.Seconds(static_cast<double>(bytes))});
  }
  const LinkFit fit = *FitLink(samples);
  // Latency is known no better than rounding of the shortest time allows.
  RC_ASSERT(std::abs(fit.latency_us - link.latency_us) <= 1e-9 * samples.front().seconds * 1e6);
  RC_ASSERT(std::abs(fit.gigabytes_per_second / link.gigabytes_per_second - 1) <= 1e-9);
  RC_ASSERT(fit.max_residual <= 1e-9);
}

RC_GTEST_PROP(FitLink, NoLinkIsNearerInRelativeError, ()) {
  std::vector<LinkSample> samples;
  const LinkFit link = {*testing::Evenly(0, 1000) / 7.0, *testing::Evenly(1, 1000) / 9.0};
  // Up to times that have nothing to do with the sizes, so that both edges are met.
  const double noise = *rc::gen::element(0.01, 0.3, 50.0);
  for (const std::int64_t bytes : DrawSizes()) {
    const double factor = 1 + noise * *testing::Evenly(0, 1000) / 1000.0;
    samples.push_back({bytes, (link.Seconds(static_cast<double>(bytes)) + 1e-6) * factor});
  }
  const LinkFit fit = *FitLink(samples);
  RC_ASSERT(fit.latency_us >= 0);
  RC_ASSERT(fit.gigabytes_per_second >= 0);
  const double objective = Objective(samples, fit.latency_us * 1e-6, PerByte(fit));
  RC_ASSERT(objective <= ReferenceObjective(samples) * (1 + 1e-9) + 1e-15);
  RC_CLASSIFY(fit.latency_us == 0, "no latency");
  RC_CLASSIFY(fit.gigabytes_per_second == 0, "no time per byte");
  // What is said of the residuals.
  double most = 0;
  for (const LinkSample& s : samples) {
    most = std::max(most, std::abs(fit.Seconds(static_cast<double>(s.bytes)) / s.seconds - 1));
  }
  RC_ASSERT(std::abs(fit.max_residual - most) <= 1e-12 + 1e-9 * most);
  const double rms = std::sqrt(objective / static_cast<double>(samples.size()));
  RC_ASSERT(std::abs(fit.rms_residual - rms) <= 1e-9 + 1e-9 * rms);
}

TEST(FitLink, StaysInTheQuadrant) {
  // Falling times: latency alone, the weighted mean 3 s.
  const LinkFit falling = *FitLink({{1000, 4.0}, {2000, 2.4}});
  EXPECT_EQ(falling.gigabytes_per_second, 0);
  EXPECT_NEAR(falling.latency_us, (1 / 4.0 + 1 / 2.4) / (1 / 16.0 + 1 / 5.76) * 1e6, 1e-3);
  // Times that grow faster than sizes: bandwidth alone.
  const LinkFit steep = *FitLink({{1'000'000'000, 1.0}, {2'000'000'000, 4.0}});
  EXPECT_EQ(steep.latency_us, 0);
  EXPECT_NEAR(steep.gigabytes_per_second, (1 + 0.25) / (1 + 0.5), 1e-12);
}

TEST(FitLink, RefusesWhatHasNoFit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::vector<LinkSample>, std::string>> cases = {
      {{}, "at least two sizes"},
      {{{10, 1}}, "at least two sizes"},
      {{{10, 1}, {10, 2}}, "at least two sizes"},
      {{{10, 1}, {-1, 2}}, "-1 bytes"},
      {{{10, 1}, {20, 0}}, "20 bytes in 0 seconds"},
      {{{10, 1}, {20, -1}}, "20 bytes in -1 seconds"},
      {{{10, nan}, {20, 1}}, "10 bytes in nan seconds"}};
  for (const auto& [samples, text] : cases) {
    const absl::Status status = FitLink(samples).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

}  // namespace
}  // namespace weft
