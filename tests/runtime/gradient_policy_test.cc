// What happens to gradients on their way into a step: numbers that are not finite, clipping, the
// loss scale, parts, and none at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/commit.h"
#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RankModel;
using testing::RunWorld;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A way of holding and updating matrices.
struct Way {
  Strategy strategy;
  Layout layout;
  GradientKind kind;
  bool adamw = false;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << Name(way.strategy) << ", " << Name(way.layout) << ", " << Name(way.kind)
             << (way.adamw ? ", adamw" : "");
}

const std::vector<Way> kWays = {
    {Strategy::kReplicated, Layout::kReplicated, GradientKind::kLocal},
    {Strategy::kReplicated, Layout::kReplicated, GradientKind::kReduced},
    {Strategy::kGather, Layout::kSharded, GradientKind::kLocal},
    {Strategy::kGather, Layout::kSharded, GradientKind::kReduced},
    {Strategy::kOwner, Layout::kReplicated, GradientKind::kLocal},
    {Strategy::kOwner, Layout::kReplicated, GradientKind::kReduced},
    {Strategy::kOwner, Layout::kSharded, GradientKind::kLocal},
    {Strategy::kOwner, Layout::kSharded, GradientKind::kReduced},
    {Strategy::kOwner, Layout::kReplicated, GradientKind::kLocal, true},
    {Strategy::kOwner, Layout::kSharded, GradientKind::kLocal, true},
    {Strategy::kGather, Layout::kNodeSharded, GradientKind::kReplica},
    {Strategy::kOwner, Layout::kNodeSharded, GradientKind::kReplica},
    {Strategy::kOwner, Layout::kNodeSharded, GradientKind::kReduced},
    {Strategy::kNodeLocal, Layout::kNodeSharded, GradientKind::kReplica},
    {Strategy::kOwner, Layout::kNodeSharded, GradientKind::kReplica, true},
};

Rule RuleOf(const Way& way) {
  if (way.adamw) return AdamWOptions{.lr = 0.01, .weight_decay = 0.1};
  return MuonOptions{.weight_decay = 0.1};
}

using Values = std::vector<std::vector<float>>;

Values StatesOf(Runtime& runtime, std::size_t count) {
  Values states;
  for (std::size_t m = 0; m < count; ++m) {
    const auto state = *runtime.State(static_cast<MatrixId>(m));
    states.emplace_back(state.begin(), state.end());
  }
  return states;
}

// Submits `factor` times the model's gradients and closes the step.
void RunStep(Runtime& runtime, const RankModel& model, std::int64_t step, float factor = 1) {
  for (std::size_t m = 0; m < model.size(); ++m) {
    std::vector<float> gradient = model.Gradient(m, step);
    for (float& value : gradient) value *= factor;
    const MatrixJob job{.matrix = static_cast<MatrixId>(m), .gradient = gradient.data()};
    ASSERT_TRUE(runtime.Submit(job).ok());
  }
  ASSERT_TRUE(runtime.Step().ok());
}

class GradientPolicy : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr int kRanks = 4;
  // Who has no rows of a matrix never lacks their gradient: each replica has some.
  const std::vector<testing::Shape> shapes_ = {
      {12, 8}, {9, 16}, {GetParam().kind == GradientKind::kReplica ? kRanks / 2 : 1, 6}};

  RankModel Model(int rank) const {
    return RankModel(shapes_, GetParam().layout, GetParam().kind, rank, kRanks, 7, kRanks / 2);
  }
  RuntimeOptions Options() const { return testing::OptionsFor({2, 2}, GetParam().strategy); }
  // With `passes` micro-steps, each of which is reduced.
  RuntimeOptions EachPass(int passes) const {
    RuntimeOptions options = Options();
    options.limits.passes = passes;
    options.limits.reduce_each_pass = true;
    return options;
  }

  // Weights of every rank after `steps` of what `run(runtime, model, rank)` does.
  template <typename Body>
  std::array<Values, kRanks> Weights(const RuntimeOptions& options, Body body) const {
    std::array<Values, kRanks> weights;
    RunWorld({.grid = {2, 2}}, [&](testing::Rank rank) {
      RankModel model = Model(rank.rank);
      auto runtime = Commit(options, rank, model, RuleOf(GetParam()));
      body(*runtime, model, rank.rank);
      ASSERT_TRUE(runtime->WaitForStep().ok());
      weights[rank.rank] = model.weights();
    });
    return weights;
  }
};

// Case 2: the bad number is on one rank only, all decide alike.
TEST_P(GradientPolicy, ANumberThatIsNotFiniteNeverEntersTheModel) {
  for (const NonFinite policy : {NonFinite::kError, NonFinite::kSkipStep, NonFinite::kSkipMatrix}) {
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      RunWorld({.grid = {2, 2}}, [&](testing::Rank rank) {
        RankModel model = Model(rank.rank);
        RuntimeOptions options = Options();
        options.non_finite = policy;
        auto runtime = Commit(options, rank, model, RuleOf(GetParam()));
        RunStep(*runtime, model, 0);
        ASSERT_TRUE(runtime->WaitForStep().ok());
        const Values weights = model.weights();
        const Values states = StatesOf(*runtime, model.size());

        const bool reduced = GetParam().kind == GradientKind::kReduced;
        const bool same_sum =
            reduced && (GetParam().layout == Layout::kReplicated ||
                        (GetParam().layout == Layout::kNodeSharded && rank.rank % 2 == 1));
        const int culprit = same_sum ? rank.rank : 1;  // and whoever holds the same
        for (int m = 0; m < 3; ++m) {
          std::vector<float> gradient = model.Gradient(m, 1);
          if (m == 0 && rank.rank == culprit) gradient.back() = bad;
          ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
        }
        ASSERT_TRUE(runtime->Step().ok());
        const absl::Status outcome = runtime->WaitForStep();
        EXPECT_EQ(outcome.ok(), policy != NonFinite::kError) << outcome;
        if (policy == NonFinite::kError) {
          EXPECT_THAT(std::string(outcome.message()),
                      HasSubstr("'m0' has a gradient that is not finite, seen on rank "));
        }
        const Values after = model.weights();
        const Values states_after = StatesOf(*runtime, model.size());
        for (std::size_t m = 0; m < 3; ++m) {
          if (m > 0 && policy == NonFinite::kSkipMatrix) {
            if (!weights[m].empty()) {
              EXPECT_NE(after[m], weights[m]);
            }
            for (const float value : after[m]) EXPECT_TRUE(std::isfinite(value));
          } else {
            EXPECT_EQ(after[m], weights[m]);
            EXPECT_EQ(states_after[m], states[m]);
          }
        }
        const auto metrics = runtime->Metrics();
        EXPECT_EQ(metrics->skipped_matrices, policy == NonFinite::kSkipMatrix ? 1 : 3);

        RunStep(*runtime, model, 2);
        ASSERT_TRUE(runtime->WaitForStep().ok());
        if (!weights[0].empty()) {
          EXPECT_NE(model.weights()[0], weights[0]);
        }
        EXPECT_EQ(runtime->Metrics()->skipped_matrices, 0);
      });
    }
  }
}

double NormOfMeans(const RankModel& model, std::int64_t step) {
  double square = 0;
  for (std::size_t m = 0; m < model.size(); ++m) {
    for (const double value : model.MeanGradient(m, step)) square += value * value;
  }
  return std::sqrt(square);
}

TEST_P(GradientPolicy, ClippingEqualsSmallerGradients) {
  constexpr double kMaxNorm = 1.5;
  RuntimeOptions clipping = Options();
  clipping.max_gradient_norm = kMaxNorm;
  const auto clipped = Weights(clipping, [&](Runtime& runtime, RankModel& model, int) {
    for (int step = 0; step < 3; ++step) {
      RunStep(runtime, model, step);
      ASSERT_TRUE(runtime.WaitForStep().ok());
      const double norm = NormOfMeans(model, step);
      ASSERT_GT(norm, kMaxNorm);
      EXPECT_NEAR(runtime.Metrics()->gradient_norm, norm, 1e-6 * norm);
      EXPECT_NEAR(runtime.Metrics()->clip_factor, kMaxNorm / (norm + 1e-6), 1e-6);
    }
  });
  const auto smaller = Weights(Options(), [&](Runtime& runtime, RankModel& model, int) {
    for (int step = 0; step < 3; ++step) {
      const double norm = NormOfMeans(model, step);
      RunStep(runtime, model, step, static_cast<float>(kMaxNorm / (norm + 1e-6)));
    }
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::size_t m = 0; m < shapes_.size(); ++m) {
      for (std::size_t i = 0; i < clipped[rank][m].size(); ++i) {
        EXPECT_NEAR(clipped[rank][m][i], smaller[rank][m][i], 1e-5);
      }
    }
  }
}

TEST_P(GradientPolicy, NormsBelowTheBoundChangeNoBit) {
  RuntimeOptions loose = Options();
  loose.max_gradient_norm = 1e6;
  const auto run = [](Runtime& runtime, RankModel& model, int) {
    for (int step = 0; step < 3; ++step) RunStep(runtime, model, step);
  };
  EXPECT_EQ(Weights(loose, run), Weights(Options(), run));
}

TEST_P(GradientPolicy, ALossScaleIsUndone) {
  const auto plain = Weights(Options(), [](Runtime& runtime, RankModel& model, int) {
    for (int step = 0; step < 3; ++step) RunStep(runtime, model, step);
  });
  const auto scaled = Weights(Options(), [](Runtime& runtime, RankModel& model, int) {
    // Powers of two change no bit.
    for (int step = 0; step < 3; ++step) {
      const float scale = std::ldexp(1.0f, 10 - step);
      ASSERT_TRUE(runtime.SetLossScale(scale).ok());
      RunStep(runtime, model, step, scale);
      ASSERT_TRUE(runtime.WaitForStep().ok());
      EXPECT_NEAR(runtime.Metrics()->gradient_norm, NormOfMeans(model, step), 1e-4);
    }
  });
  EXPECT_EQ(plain, scaled);
}

// Case 11. Whole numbers add up without rounding, so the sum's order does not matter.
TEST_P(GradientPolicy, PartsAddUpToOneGradient) {
  const auto part = [](const RankModel& model, int m, int micro) {
    std::vector<float> gradient = model.Gradient(m, micro);
    for (float& value : gradient) value = std::round(value * 8);
    return gradient;
  };
  const auto whole = Weights(Options(), [&](Runtime& runtime, RankModel& model, int) {
    for (int m = 2; m >= 0; --m) {
      std::vector<float> sum = part(model, m, 0);
      for (int micro = 1; micro < 4; ++micro) {
        const std::vector<float> more = part(model, m, micro);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
      }
      ASSERT_TRUE(runtime.Submit({.matrix = m, .gradient = sum.data()}).ok());
    }
    ASSERT_TRUE(runtime.Step().ok());
  });
  const auto in_parts = [&](const RuntimeOptions& options, bool with_event) {
    RunWorld({.grid = {2, 2}}, [&](testing::Rank rank) {
      RankModel model = Model(rank.rank);
      auto runtime = Commit(options, rank, model, RuleOf(GetParam()));
      const auto stream = rank.device.CreateStream("trainer");
      const auto ready = rank.device.CreateEvent();
      std::vector<std::vector<float>> kept;
      kept.reserve(12);
      std::vector<std::unique_ptr<testing::Pinned>> pins;
      for (int micro = 0; micro < 4; ++micro) {
        for (int m = 2; m >= 0; --m) {
          MatrixJob job{.matrix = m};
          if (with_event) {
            std::vector<float>& buffer = kept.emplace_back(part(model, m, micro).size());
            pins.push_back(
                std::make_unique<testing::Pinned>(buffer.data(), buffer.size() * sizeof(float)));
            job.gradient = buffer.data();
            job.ready = ready.get();
            stream->Enqueue([&buffer, &model, part, m, micro] {
              const std::vector<float> values = part(model, m, micro);
              std::copy(values.begin(), values.end(), buffer.begin());
              return absl::OkStatus();
            });
            stream->Record(*ready);
          } else {
            kept.assign(1, part(model, m, micro));
            job.gradient = kept[0].data();
          }
          job.more = micro < 3;
          ASSERT_TRUE(runtime->Submit(job).ok());
        }
      }
      ASSERT_TRUE(runtime->Step().ok());
      ASSERT_TRUE(runtime->WaitForStep().ok());
      EXPECT_EQ(model.weights(), whole[rank.rank]) << "events " << with_event;
      // Where nobody reads a rank's gradient nothing of Weft waits for it either.
      ASSERT_TRUE(stream->Synchronize(absl::Minutes(1)).ok());
      for (const MatrixCounters& counters : runtime->Counters()) EXPECT_LE(counters.ns_runs, 1);
    });
  };
  for (const RuntimeOptions& options : {Options(), EachPass(4)}) {
    for (const bool with_event : {false, true}) in_parts(options, with_event);
  }
}

TEST_P(GradientPolicy, AMatrixWithoutAGradientIsLeftAloneWhereThatIsAsked) {
  RunWorld({.grid = {2, 2}}, [&](testing::Rank rank) {
    RankModel model = Model(rank.rank);
    RuntimeOptions options = Options();
    options.missing_gradient = MissingGradient::kSkip;
    auto runtime = Commit(options, rank, model, RuleOf(GetParam()));
    RunStep(*runtime, model, 0);
    ASSERT_TRUE(runtime->WaitForStep().ok());
    const Values weights = model.weights();
    const Values states = StatesOf(*runtime, model.size());
    const std::vector<float> gradient = model.Gradient(1, 1);
    ASSERT_TRUE(runtime->Submit({.matrix = 1, .gradient = gradient.data()}).ok());
    ASSERT_TRUE(runtime->Step().ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
    for (const std::size_t m : {0, 2}) {
      EXPECT_EQ(model.weights()[m], weights[m]);
      EXPECT_EQ(StatesOf(*runtime, model.size())[m], states[m]);
    }
    if (!weights[1].empty()) {
      EXPECT_NE(model.weights()[1], weights[1]);
    }
    EXPECT_EQ(runtime->Metrics()->skipped_matrices, 2);
    EXPECT_EQ(runtime->WithoutGradient(1), (std::vector<std::string>{"m0", "m2"}));
  });
}

TEST_P(GradientPolicy, PartsThatAreNoneAreNoGradient) {
  RunWorld({.grid = {2, 2}}, [&](testing::Rank rank) {
    RankModel model = Model(rank.rank);
    RuntimeOptions options = Options();
    options.missing_gradient = MissingGradient::kSkip;
    // Where each micro-step is reduced, all matrices have theirs before the next.
    const int jobs = GetParam().kind != GradientKind::kReduced ? 3 : 1;
    for (const bool each : {false, true}) {
      options.name = each ? "each" : "once";
      options.limits = each ? EachPass(3).limits : PlanLimits();
      auto runtime = Commit(options, rank, model, RuleOf(GetParam()));
      const Values weights = model.weights();
      for (const bool more : {true, true, false}) {
        for (int m = 0; m < jobs; ++m) {
          ASSERT_TRUE(runtime->Submit({.matrix = m, .more = more}).ok());
        }
      }
      ASSERT_TRUE(runtime->Step().ok());
      ASSERT_TRUE(runtime->WaitForStep().ok());
      EXPECT_EQ(model.weights(), weights);
      EXPECT_EQ(runtime->Metrics()->skipped_matrices, 3);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, GradientPolicy, ::testing::ValuesIn(kWays));

std::vector<Way> WaysThatReduce() {
  std::vector<Way> ways = kWays;
  std::erase_if(ways, [](const Way& way) { return way.kind == GradientKind::kReduced; });
  return ways;
}

// Each micro-step is reduced.
class EachMicroStep : public GradientPolicy {
 protected:
  static constexpr int kPasses = 3;

  // Submits a job, without a gradient where `has(matrix, micro)` says so; its status.
  template <typename Has>
  static absl::Status Submit(Runtime& runtime, const RankModel& model, int m, int micro, Has has) {
    const std::vector<float> gradient = model.Gradient(m, micro);
    const MatrixJob job{.matrix = m,
                        .gradient = has(m, micro) ? gradient.data() : nullptr,
                        .more = micro + 1 < kPasses};
    return runtime.Submit(job).status();
  }
  template <typename Has>
  static void RunMicroSteps(Runtime& runtime, const RankModel& model, Has has) {
    for (int micro = 0; micro < kPasses; ++micro) {
      for (int m = 2; m >= 0; --m) {
        const absl::Status status = Submit(runtime, model, m, micro, has);
        ASSERT_TRUE(status.ok()) << status;
      }
    }
    ASSERT_TRUE(runtime.Step().ok());
  }
};

TEST_P(EachMicroStep, OneWithoutAGradientIsARanksZeros) {
  for (const MissingGradient policy : {MissingGradient::kZero, MissingGradient::kSkip}) {
    const auto run = [&](RuntimeOptions options) {
      options.missing_gradient = policy;
      return Weights(options, [](Runtime& runtime, RankModel& model, int rank) {
        RunMicroSteps(runtime, model, [&](int m, int micro) { return (m + micro + rank) % 2 > 0; });
      });
    };
    const auto once = run(Options()), each = run(EachPass(kPasses));
    for (int rank = 0; rank < kRanks; ++rank) {
      for (std::size_t m = 0; m < shapes_.size(); ++m) {
        for (std::size_t i = 0; i < each[rank][m].size(); ++i) {
          EXPECT_NEAR(each[rank][m][i], once[rank][m][i], 1e-4);
        }
      }
    }
  }
}

// Where a rank's step ends before its last micro-step, the rest counts as zeros or is told to all;
// nobody waits for it.
TEST_P(EachMicroStep, AStepMayEndEarly) {
  const auto all = [](int, int) { return true; };
  const auto first = [](int m, int micro) { return micro == 0 || (micro == 1 && m == 2); };
  const auto run = [&](MissingGradient policy, const auto& rank_one) {
    RuntimeOptions options = EachPass(kPasses);
    options.missing_gradient = policy;
    return Weights(options, [&](Runtime& runtime, RankModel& model, int rank) {
      if (rank != 1) {
        RunMicroSteps(runtime, model, all);
      } else {
        rank_one(runtime, model);
      }
      if (policy != MissingGradient::kError) return;
      const absl::Status outcome = runtime.WaitForStep();
      EXPECT_THAT(std::string(outcome.message()), HasSubstr("'m0' has no gradient on rank 1"));
      EXPECT_EQ(model.weights(), Model(rank).weights());
      RunMicroSteps(runtime, model, all);
    });
  };
  const auto ends = [&](const absl::Status& expected) {
    return [&, expected](Runtime& runtime, RankModel& model) {
      for (const int m : {2, 1, 0}) ASSERT_TRUE(Submit(runtime, model, m, 0, all).ok());
      ASSERT_TRUE(Submit(runtime, model, 2, 1, all).ok());
      const absl::Status closed = runtime.Step();
      EXPECT_EQ(closed.code(), expected.code());
      EXPECT_THAT(std::string(closed.message()), HasSubstr(std::string(expected.message())));
    };
  };
  const auto zeros = [&](Runtime& runtime, RankModel& model) {
    RunMicroSteps(runtime, model, first);
  };
  EXPECT_EQ(run(MissingGradient::kZero, ends(absl::OkStatus())),
            run(MissingGradient::kZero, zeros));
  run(MissingGradient::kError,
      ends(absl::FailedPreconditionError("no gradient on rank 1 for matrix 'm0' (in 2 of 3 "
                                         "micro-steps), 'm1' (in 2 of 3 micro-steps), 'm2' (in 1 "
                                         "of 3 micro-steps)")));
}

TEST_P(EachMicroStep, JobsThatDoNotFitAreRefusedAndChangeNothing) {
  const auto all = [](int, int) { return true; };
  const auto plain = Weights(EachPass(kPasses), [&](Runtime& runtime, RankModel& model, int) {
    RunMicroSteps(runtime, model, all);
  });
  const auto refused = Weights(EachPass(kPasses), [&](Runtime& runtime, RankModel& model, int) {
    for (int micro = 0; micro < kPasses; ++micro) {
      const bool last = micro + 1 == kPasses;
      for (int m = 2; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, micro + 7);
        const auto wrong = runtime.Submit({.matrix = m, .gradient = gradient.data(), .more = last});
        EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(wrong.status().message()),
                    AllOf(HasSubstr("matrix 'm" + std::to_string(m)),
                          HasSubstr("micro-step " + std::to_string(micro + 1) + " of 3"),
                          HasSubstr(last ? "that more gradients" : "no more gradients")));
        ASSERT_TRUE(Submit(runtime, model, m, micro, all).ok());
        if (m == 0) continue;
        // The matrices registered before have had no job of this micro-step.
        const absl::Status early = Submit(runtime, model, m, micro + 1, all);
        EXPECT_EQ(early.code(),
                  last ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kFailedPrecondition)
            << early;
      }
    }
    ASSERT_TRUE(runtime.Step().ok());
  });
  EXPECT_EQ(refused, plain);
}

INSTANTIATE_TEST_SUITE_P(Ways, EachMicroStep, ::testing::ValuesIn(WaysThatReduce()));

TEST(LossScale, OnesThatDifferAreToldAndBadOnesRefused) {
  RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
    RankModel model({{4, 4}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 7);
    auto runtime = Commit(testing::OptionsFor({1, 2}), rank, model);
    for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e300, 1e-300}) {
      EXPECT_EQ(runtime->SetLossScale(bad).code(), absl::StatusCode::kInvalidArgument);
    }
    ASSERT_TRUE(runtime->SetLossScale(rank.rank == 0 ? 512 : 1024).ok());
    const Values weights = model.weights();
    RunStep(*runtime, model, 0);
    EXPECT_THAT(std::string(runtime->WaitForStep().message()),
                HasSubstr("the loss scale is 512 on one rank and 1024 on another"));
    EXPECT_EQ(model.weights(), weights);
  });
}

TEST(Parts, AStepWithOneStillToComeIsRefused) {
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    RankModel model({{4, 4}}, Layout::kReplicated, GradientKind::kLocal, 0, 1, 7);
    auto runtime = Commit(testing::OptionsFor({1, 1}), rank, model);
    const std::vector<float> gradient = model.Gradient(0, 0);
    ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data(), .more = true}).ok());
    EXPECT_THAT(std::string(runtime->Step().message()), HasSubstr("'m0'"));
    EXPECT_EQ(runtime->steps(), 0);
    ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data()}).ok());
    EXPECT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
  });
}

}  // namespace
}  // namespace weft
