// Cost profiles for tests.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/cost_profile.h"

namespace weft::testing {

inline ComputeShape Shape(std::int64_t rows, std::int64_t cols, std::string recipe = "gram 2,2,1",
                          DType dtype = DType::kF32) {
  return {ComputeKind::kNewtonSchulz, rows, cols, dtype, std::move(recipe)};
}

// Two shapes, one of them at two batches; an all-reduce over 4 ranks.
inline CostProfile SmallProfile() {
  CostProfile profile;
  profile.measured_at = "2026-11-30T12:00:00Z";
  profile.fingerprint = {"0.1.0",
                         "oneDNN 3.1.1",
                         "host",
                         "AMD EPYC, 2 CPUs",
                         1,
                         "local",
                         Topology{{2, 2}, {10, 12.5}, {20.25, 3}, 1}};
  profile.compute = {{Shape(100, 200), 1, 1e6, 1e-3, 0.01},
                     {Shape(100, 200), 4, 1e6, 3e-3, 0.02},
                     {Shape(200, 400), 1, 8e6, 4e-3, 0}};
  profile.collectives = {{OpKind::kAllReduce,
                          GroupClass::kWorld,
                          4,
                          {30, 2, 0.125, 0.0625},
                          {{4096, 3.25e-5, 0.5}, {1048576, 5.5e-4, 0}}}};
  return profile;
}

inline double DrawPositive() {
  return *Evenly(1, 1'000'000) * *rc::gen::element(1e-9, 1e-3, 1.0 / 3, 1.0, 1e7);
}

inline Link DrawLink() {
  return {*Evenly(0, 1000) / 7.0, *rc::gen::element(0.0, 1.0 / 3, 12.5, 400.0)};
}

inline CostProfile DrawProfile() {
  CostProfile profile;
  profile.measured_at = *rc::gen::string<std::string>();
  std::replace_if(
      profile.measured_at.begin(), profile.measured_at.end(),
      [](char c) { return static_cast<unsigned char>(c) > 127; }, '?');
  profile.fingerprint = {
      "0.1." + std::to_string(*Evenly(0, 9)),
      "oneDNN \"3\"",
      "host",
      "a\tdevice",
      *Evenly(1, 64),
      "gloo",
      Topology{{*Evenly(1, 9), *Evenly(1, 9)}, DrawLink(), DrawLink(), *Evenly(0, 4)}};
  std::map<std::pair<ComputeShape, int>, ComputeSample> compute;
  for (int i = *Evenly(0, 8); i > 0; --i) {
    ComputeSample sample;
    sample.shape.kind = *rc::gen::element(ComputeKind::kNewtonSchulz, ComputeKind::kRowNorm);
    sample.shape.rows = *Evenly<std::int64_t>(1, 5000);
    sample.shape.cols = sample.shape.rows + *Evenly<std::int64_t>(0, 5000);
    sample.shape.dtype = *rc::gen::elementOf(kDTypes);
    sample.shape.recipe = *rc::gen::element<std::string>("", "plain 5", "gram 2,2,1");
    sample.batch = *Evenly(1, 17);
    sample.flops = DrawPositive();
    sample.seconds = DrawPositive();
    sample.spread = DrawPositive();
    compute[{sample.shape, sample.batch}] = sample;
  }
  for (const auto& [key, sample] : compute) profile.compute.push_back(sample);
  std::map<std::tuple<OpKind, GroupClass, int>, CollectiveCost> collectives;
  for (int i = *Evenly(0, 8); i > 0; --i) {
    CollectiveCost cost;
    cost.kind = static_cast<OpKind>(*Evenly(0, 7));
    cost.group = *rc::gen::element(GroupClass::kWorld, GroupClass::kIntra, GroupClass::kInter);
    cost.ranks = *Evenly(2, 70);
    cost.fit = {DrawPositive(), DrawPositive(), DrawPositive(), DrawPositive()};
    for (int s = *Evenly(0, 5), bytes = 0; s > 0; --s) {
      bytes += *Evenly(1, 1000);
      cost.samples.push_back({bytes, DrawPositive(), DrawPositive()});
    }
    collectives[{cost.kind, cost.group, cost.ranks}] = cost;
  }
  for (const auto& [key, cost] : collectives) profile.collectives.push_back(cost);
  return profile;
}

}  // namespace weft::testing
