// Newton-Schulz runs for tests: inputs, options and one call that runs them on a device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/support/relative_error.h"
#include "tools/reference/update.h"
#include "update/newton_schulz.h"
#include "weft/device.h"
#include "weft/update.h"

namespace weft::testing {

inline std::vector<Coefficients> AllCoefficients() {
  return {Coefficients::Quintic(), Coefficients::PolarExpress(), Coefficients::You()};
}

inline NewtonSchulzOptions Options(Coefficients coefficients, DType type,
                                   std::vector<int> segments) {
  NewtonSchulzOptions options;
  options.coefficients = std::move(coefficients);
  options.operand_type = type;
  options.segments = std::move(segments);
  return options;
}

inline std::string Describe(const NewtonSchulzOptions& options) {
  return options.coefficients.name + " " + std::string(Name(options.operand_type)) + " [" +
         absl::StrJoin(options.segments, ",") + "]";
}

inline std::vector<reference::Polynomial> TriplesOf(const NewtonSchulzOptions& options) {
  std::vector<reference::Polynomial> triples;
  const auto& given = options.coefficients.triples;
  for (int i = 0; i < options.iterations; ++i) {
    const Triple& t = given[std::min<std::size_t>(i, given.size() - 1)];
    triples.push_back({t.a, t.b, t.c});
  }
  return triples;
}

// The direction of one rows x cols matrix by plain NS in serial float64.
inline std::vector<double> ReferenceNewtonSchulz(const NewtonSchulzOptions& options,
                                                 const std::vector<double>& g, std::int64_t rows,
                                                 std::int64_t cols) {
  reference::MuonSettings settings;
  settings.iterations = TriplesOf(options);
  return reference::Orthogonalize(settings, g, rows, cols);
}

// What the polynomials make of one singular value.
inline double ScalarFactor(const NewtonSchulzOptions& options, double s) {
  for (const auto& [a, b, c] : TriplesOf(options)) s = s * (a + s * s * (b + s * s * c));
  return s;
}

inline std::vector<double> Gaussian(std::int64_t count, std::uint64_t seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(count));
  // Stored as fp32 later: the reference must see the same numbers.
  for (double& value : values) value = static_cast<float>(normal(random) * scale);
  return values;
}

inline std::vector<float> Orthogonalize(Device& device, const NewtonSchulzOptions& options,
                                        const std::vector<double>& g, std::int64_t rows,
                                        std::int64_t cols, std::int64_t batch = 1) {
  const std::vector<float> update(g.begin(), g.end());
  std::vector<float> direction(g.size(), -7.0f);
  auto run = update::NewtonSchulz::Create(device, options, rows, cols, batch);
  EXPECT_TRUE(run.ok()) << run.status().ToString();
  if (!run.ok()) return direction;
  const auto workspace = *device.Allocate((*run)->workspace_bytes());
  const auto stream = device.CreateStream("ns");
  EXPECT_TRUE((*run)->Enqueue(*stream, update.data(), direction.data(), workspace->data()).ok());
  EXPECT_TRUE(stream->Synchronize(absl::InfiniteDuration()).ok());
  return direction;
}

}  // namespace weft::testing
