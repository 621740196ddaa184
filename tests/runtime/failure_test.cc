// What a step does when something is missing, raises or hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>

#include "tests/support/commit.h"
#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using testing::Commit;
using ::testing::HasSubstr;
using testing::RankModel;
using testing::RunWorld;

const std::vector<testing::Shape> kShapes = {{6, 4}, {4, 6}, {5, 5}};

void SubmitAll(Runtime& runtime, const RankModel& model, std::int64_t step, int except = -1) {
  for (std::size_t m = 0; m < model.size(); ++m) {
    if (static_cast<int>(m) == except) continue;
    const std::vector<float> gradient = model.Gradient(m, step);
    const auto job =
        runtime.Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradient.data()});
    ASSERT_TRUE(job.ok()) << job.status();
  }
}

// Case 19, policy `error`: the step changes nothing anywhere, both ranks name matrix and rank, and
// training goes on.
TEST(MissingGradient, ErrorChangesNothingOnAnyRank) {
  const ProcessGrid grid{1, 2};
  for (const Strategy strategy : {Strategy::kOwner, Strategy::kReplicated}) {
    RunWorld({.grid = grid}, [&](testing::Rank rank) {
      RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
      auto runtime = Commit(testing::OptionsFor(grid, strategy), rank, model);
      for (int step = 0; step < 2; ++step) {
        SubmitAll(*runtime, model, step);
        ASSERT_TRUE(runtime->Step().ok());
      }
      ASSERT_TRUE(runtime->WaitForStep().ok());
      const auto weights = model.weights();
      std::vector<std::vector<float>> states;
      for (int m = 0; m < 3; ++m) {
        const auto state = runtime->State(m);
        states.emplace_back(state->begin(), state->end());
      }

      SubmitAll(*runtime, model, 2, rank.rank == 1 ? 1 : -1);
      const absl::Status closed = runtime->Step();
      if (rank.rank == 1) {
        EXPECT_EQ(closed.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(closed.message()), HasSubstr("'m1'"));
      } else {
        EXPECT_TRUE(closed.ok()) << closed;
      }
      const absl::Status outcome = runtime->WaitForStep();
      EXPECT_EQ(outcome.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(outcome.message()), HasSubstr("'m1' has no gradient on rank 1"));
      EXPECT_EQ(model.weights(), weights);
      for (int m = 0; m < 3; ++m) {
        const auto state = runtime->State(m);
        EXPECT_EQ(std::vector<float>(state->begin(), state->end()), states[m]);
      }

      SubmitAll(*runtime, model, 3);
      ASSERT_TRUE(runtime->Step().ok());
      EXPECT_TRUE(runtime->WaitForStep().ok());
      EXPECT_NE(model.weights(), weights);
    });
  }
}

// Case 19, policy `zero`: as if that rank had submitted zeros.
TEST(MissingGradient, ZeroEqualsSubmittedZeros) {
  const ProcessGrid grid{1, 2};
  std::array<std::vector<std::vector<float>>, 2> omitted, submitted;
  for (auto* result : {&omitted, &submitted}) {
    RunWorld({.grid = grid}, [&](testing::Rank rank) {
      RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
      RuntimeOptions options = testing::OptionsFor(grid);
      options.missing_gradient = MissingGradient::kZero;
      auto runtime = Commit(options, rank, model);
      for (int step = 0; step < 3; ++step) {
        const bool without = step == 1 && rank.rank == 1;
        SubmitAll(*runtime, model, step, without ? 2 : -1);
        if (without && result == &submitted) {
          const std::vector<float> zeros(model.Size(2), 0.0f);
          ASSERT_TRUE(runtime->Submit({.matrix = 2, .gradient = zeros.data()}).ok());
        }
        ASSERT_TRUE(runtime->Step().ok());
      }
      ASSERT_TRUE(runtime->WaitForStep().ok());
      (*result)[rank.rank] = model.weights();
    });
  }
  EXPECT_EQ(omitted, submitted);
  EXPECT_EQ(omitted[0], omitted[1]);
}

// A matrix that nobody ever gives a gradient is reported by name.
TEST(MissingGradient, WhatNeverTrainsIsNamed) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
    RuntimeOptions options = testing::OptionsFor(grid);
    options.missing_gradient = MissingGradient::kZero;
    auto runtime = Commit(options, rank, model);
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(runtime->WithoutGradient(3).empty());
      // m0 comes from one rank only, which is enough; m1 from none.
      SubmitAll(*runtime, model, step, 1);
      ASSERT_TRUE(runtime->Step().ok());
      ASSERT_TRUE(runtime->WaitForStep().ok());
    }
    EXPECT_THAT(runtime->WithoutGradient(3), ::testing::ElementsAre("m1"));
  });
}

// Case 20: one rank's rule raises; all ranks return the same error, naming the job.
TEST(RaisingRule, FailsEveryRankWithTheSameStory) {
  const ProcessGrid grid{2, 2};
  std::array<std::string, 4> messages;
  RunWorld({.grid = grid, .deadline = absl::Seconds(60)}, [&](testing::Rank rank) {
    RankModel model({{4, 4}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 4, 5);
    CustomRule rule;
    rule.enqueue = [](const RuleContext& context) -> absl::Status {
      if (context.step == 1) throw std::runtime_error("the loss is on fire");
      return absl::OkStatus();
    };
    auto runtime = Commit(testing::OptionsFor(grid), rank, model, rule);
    SubmitAll(*runtime, model, 0);
    ASSERT_TRUE(runtime->Step().ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
    SubmitAll(*runtime, model, 1);
    (void)runtime->Step();
    const absl::Status status = runtime->WaitForStep();
    EXPECT_FALSE(status.ok());
    messages[rank.rank] = std::string(status.message());
    EXPECT_EQ(runtime->Progress(), status) << "the runtime stays dead and says so";
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, HasSubstr("matrix 'm0' in step 1: the loss is on fire"));
    EXPECT_THAT(message, HasSubstr("rank 0"));
  }
}

// Case 24: after a forced hang every rank can tell what it did last.
TEST(ForcedHang, EndsAtTheDeadlineAndLeavesTheDecisions) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid, .deadline = absl::Milliseconds(300)}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
    RuntimeOptions options = testing::OptionsFor(grid);
    options.decision_ring = 64;
    auto runtime = Commit(options, rank, model);
    if (rank.rank == 0) {
      SubmitAll(*runtime, model, 0);
      const absl::Status closed = runtime->Step();
      const absl::Status status = runtime->WaitForStep();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      const std::string message(status.message());
      EXPECT_THAT(message, HasSubstr("rank 1"));
      EXPECT_THAT(message, HasSubstr("'m2'"));
      EXPECT_THAT(message, HasSubstr("reduce"));
      EXPECT_THAT(message, HasSubstr("world"));
      const std::string ring = runtime->DescribeDecisions();
      EXPECT_THAT(ring, HasSubstr("submitted 'm0'"));
      EXPECT_THAT(ring, HasSubstr("started reduce 'm2'"));
      EXPECT_THAT(ring, HasSubstr("failed reduce 'm2'"));
    } else {
      // Never submits; learns from its peer that the world has ended.
      while (rank.transport.failure().ok()) std::this_thread::yield();
      EXPECT_FALSE(runtime->Step().ok() && runtime->WaitForStep().ok());
    }
  });
}

}  // namespace
}  // namespace weft
