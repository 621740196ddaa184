// Steps that are nothing but communication: equal matrices, whose rule is no work, on emulated
// links.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/emulated_world.h"
#include "bench/plan_timeline.h"
#include "weft/plan_evaluator.h"

namespace weft::bench {

// Matrices are of kTrafficSide x kTrafficSide and stand for ones of kTrafficSideRatio times that.
inline constexpr int kTrafficSide = 256;
inline constexpr double kTrafficSideRatio = 16;

class Traffic {
 public:
  // Runs one step, since the first one touches memory for the first time.
  Traffic(const RuntimeOptions& options, int matrices, GradientKind gradient)
      : matrices_(matrices), gradient_(gradient), world_(options.topology) {
    world_.OnAll([&](int, EmulatedRank& rank) { Commit(rank, options); });
    TimelineOptions timeline;
    timeline.topology = options.topology;
    const Plan& plan = world_.ranks()[0].runtime->plan();
    by_links_ = TimelineOf(plan, timeline).delivered[0];
    predicted_ = EvaluatePlan(plan, CostModel(options.topology, OnlyProducts(0)))->step_seconds;
    (void)Step();
  }

  void Measure() { seconds_.push_back(Step()); }

  // Of a step: from the last rank's first Submit(), or with reduced gradients its Step(), to the
  // last delivery.
  double Median() {
    std::sort(seconds_.begin(), seconds_.end());
    return seconds_[seconds_.size() / 2];
  }
  // What the emulated links alone take of it.
  double by_links() const { return by_links_; }
  // What EvaluatePlan() says, whose links are shared fairly.
  double predicted() const { return predicted_; }

 private:
  static constexpr std::size_t kElements = std::size_t{kTrafficSide} * kTrafficSide;

  void Commit(EmulatedRank& rank, const RuntimeOptions& options) const {
    rank.device = *CreateHostDevice();
    rank.memory.assign((static_cast<std::size_t>(matrices_) + 1) * kElements, 0);
    rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
    CustomRule rule;
    rule.enqueue = [](const RuleContext&) { return absl::OkStatus(); };
    rule.state_bytes_per_element = 0;
    rule.flops = 1;
    for (int m = 0; m < matrices_; ++m) {
      MatrixSpec spec;
      spec.name = absl::StrCat("m", m);
      spec.rows = spec.cols = kTrafficSide;
      spec.dtype = DType::kBF16;
      spec.weight = &rank.memory[static_cast<std::size_t>(m) * kElements];
      spec.gradient = gradient_;
      spec.rule = rule;
      WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
    }
    const absl::Status status = rank.runtime->Commit();
    WEFT_CHECK(status.ok()) << status;
  }

  double Step() {
    Clock& clock = Clock::Steady();
    std::vector<Nanos> began(world_.ranks().size());
    world_.OnAll([&](int index, EmulatedRank& rank) {
      const std::uint16_t* const gradient = &rank.memory[rank.memory.size() - kElements];
      began[index] = clock.Now();
      for (int m = matrices_ - 1; m >= 0; --m) {
        WEFT_CHECK(rank.runtime->Submit({.matrix = m, .gradient = gradient}).ok());
      }
      WEFT_CHECK(rank.runtime->Step().ok());
      WEFT_CHECK(rank.runtime->WaitForStep().ok());
    });
    std::vector<StepMetrics> metrics;
    // The ranks share a clock.
    for (EmulatedRank& rank : world_.ranks()) metrics.push_back(*rank.runtime->Metrics());
    if (gradient_ == GradientKind::kReduced) return OptimizerSeconds(metrics);
    return 1e-9 * static_cast<double>(clock.Now() - *std::max_element(began.begin(), began.end()));
  }

  const int matrices_;
  const GradientKind gradient_;
  EmulatedWorld world_;
  std::vector<double> seconds_;
  double by_links_ = 0;
  double predicted_ = 0;
};

}  // namespace weft::bench
