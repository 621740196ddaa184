// What a step does when something is missing, raises or hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "tests/support/commit.h"
#include "tests/support/costs.h"
#include "tests/support/model.h"
#include "tests/support/property.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using ::testing::AllOf;
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

void AwaitFailure(Transport& transport) {
  testing::Blocking([&] {
    while (transport.failure().ok()) std::this_thread::yield();
  });
}

// What a rank's device has been given runs also after a peer has failed, and a host that is behind
// it learns of that failure sooner than of its own steps.
bool RunsAhead(const testing::Rank& rank) { return rank.device.kind() != "host"; }

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

// Zeros are no rank's share of a sum that is already made.
TEST(MissingGradient, AReducedGradientComesFromAllRanksOrNone) {
  for (const Layout layout : {Layout::kReplicated, Layout::kSharded}) {
    RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
      // The second matrix has one row: rank 1's shard of it is empty.
      RankModel model({{4, 6}, {1, 5}}, layout, GradientKind::kReduced, rank.rank, 2, 5);
      const Strategy strategy =
          layout == Layout::kReplicated ? Strategy::kReplicated : Strategy::kOwner;
      RuntimeOptions options = testing::OptionsFor({1, 2}, strategy);
      options.missing_gradient = MissingGradient::kZero;
      auto runtime = Commit(options, rank, model);
      const auto weights = model.weights();
      if (rank.rank == 0) SubmitAll(*runtime, model, 0);
      ASSERT_TRUE(runtime->Step().ok());
      const absl::Status outcome = runtime->WaitForStep();
      EXPECT_EQ(outcome.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(outcome.message()),
                  HasSubstr("'m0' comes reduced from one rank and not at all from another"));
      EXPECT_EQ(model.weights(), weights);
      // None at all is no gradient; an empty shard lacks nothing.
      if (rank.rank == 0 && layout == Layout::kSharded) {
        ASSERT_TRUE(runtime->Submit({.matrix = 1, .gradient = model.Gradient(1, 0).data()}).ok());
      }
      ASSERT_TRUE(runtime->Step().ok());
      EXPECT_TRUE(runtime->WaitForStep().ok());
    });
  }
}

// A learning-rate schedule reaches a rank without a gradient by a job without one.
TEST(MissingGradient, AJobWithoutAGradientCarriesTheSchedule) {
  for (const Strategy strategy : {Strategy::kReplicated, Strategy::kOwner}) {
    const ProcessGrid grid{1, 2};
    std::array<std::vector<std::vector<float>>, 2> none, zeros;
    for (auto* result : {&none, &zeros}) {
      RunWorld({.grid = grid}, [&](testing::Rank rank) {
        RankModel model({{4, 6}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
        RuntimeOptions options = testing::OptionsFor(grid, strategy);
        options.missing_gradient = MissingGradient::kZero;
        auto runtime = Commit(options, rank, model);
        const std::vector<float> nothing(model.Size(0), 0.0f);
        for (int step = 0; step < 3; ++step) {
          const std::vector<float> own = model.Gradient(0, step);
          const float* gradient = own.data();
          if (step == 1 && rank.rank == 1) gradient = result == &none ? nullptr : nothing.data();
          const MatrixJob job{
              .matrix = 0, .gradient = gradient, .lr = 0.1 / (step + 1), .weight_decay = 0.1};
          ASSERT_TRUE(runtime->Submit(job).ok());
          ASSERT_TRUE(runtime->Step().ok());
        }
        ASSERT_TRUE(runtime->WaitForStep().ok());
        (*result)[rank.rank] = model.weights();
      });
    }
    EXPECT_EQ(none, zeros);
    EXPECT_EQ(none[0], none[1]);
  }
}

// Otherwise copies would drift apart without a word.
TEST(Rates, RanksThatMeanDifferentOnesAreToldAndNothingChanges) {
  const ProcessGrid grid{1, 3};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 3, 5);
    RuntimeOptions options = testing::OptionsFor(grid, Strategy::kReplicated);
    options.missing_gradient = MissingGradient::kZero;
    auto runtime = Commit(options, rank, model);
    const auto weights = model.weights();
    // Rank 1 has no job for m1 and so keeps the old rate.
    SubmitAll(*runtime, model, 0, 1);
    const std::vector<float> gradient = model.Gradient(1, 0);
    if (rank.rank != 1) {
      ASSERT_TRUE(runtime->Submit({.matrix = 1, .gradient = gradient.data(), .lr = 0.25}).ok());
    }
    ASSERT_TRUE(runtime->Step().ok());
    absl::Status outcome = runtime->WaitForStep();
    EXPECT_EQ(outcome.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(outcome.message()),
                HasSubstr("'m1' has the learning rate 0.02 on one rank and 0.25 on another"));
    EXPECT_EQ(model.weights(), weights);

    for (int m = 0; m < 3; ++m) {
      const std::vector<float> own = model.Gradient(m, 1);
      MatrixJob job{.matrix = m, .gradient = own.data(), .lr = 0.25};
      if (m == 2) job.weight_decay = rank.rank * 0.5;
      ASSERT_TRUE(runtime->Submit(job).ok());
    }
    ASSERT_TRUE(runtime->Step().ok());
    outcome = runtime->WaitForStep();
    EXPECT_THAT(std::string(outcome.message()),
                HasSubstr("'m2' has the weight decay 0 on one rank and 1 on another"));
    EXPECT_EQ(model.weights(), weights);
  });
}

TEST(Rates, OnesThatAreNoRatesAreRefused) {
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, 0, 1, 5);
    auto runtime = Commit(testing::OptionsFor({1, 1}), rank, model);
    const std::vector<float> gradient = model.Gradient(1, 0);
    for (const double bad : {std::nan(""), HUGE_VAL, -1.0}) {
      for (const bool decay : {false, true}) {
        MatrixJob job{.matrix = 1, .gradient = gradient.data()};
        (decay ? job.weight_decay : job.lr) = bad;
        const absl::Status refused = runtime->Submit(job).status();
        EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(refused.message()), HasSubstr("'m1'"));
      }
    }
    EXPECT_TRUE(runtime->Submit({.matrix = 1, .gradient = gradient.data()}).ok());
  });
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
    absl::Status status = runtime->WaitForStep();
    ASSERT_TRUE(status.ok() || RunsAhead(rank)) << status;
    if (status.ok()) {
      const std::vector<float> gradient = model.Gradient(0, 1);
      const auto job = runtime->Submit({.matrix = 0, .gradient = gradient.data()});
      ASSERT_TRUE(job.ok() || RunsAhead(rank)) << job.status();
      (void)runtime->Step();
      status = runtime->WaitForStep();
    }
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
TEST(RaisingRule, WorkThatFailsLaterIsToldWithItsMatrixAndStep) {
  RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
    RankModel model({{4, 4}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
    CustomRule rule;
    rule.enqueue = [](const RuleContext& context) -> absl::Status {
      context.stream.Enqueue([] { return absl::DataLossError("stream bad"); });
      return absl::OkStatus();
    };
    auto runtime = Commit(testing::OptionsFor({1, 2}), rank, model, rule);
    SubmitAll(*runtime, model, 0);
    ASSERT_TRUE(runtime->Step().ok());
    absl::Status status = runtime->WaitForStep();
    if (rank.rank == 1 && RunsAhead(rank) && status.ok()) {
      AwaitFailure(rank.transport);
      const std::vector<float> gradient = model.Gradient(0, 1);
      (void)runtime->Submit({.matrix = 0, .gradient = gradient.data()});
      (void)runtime->Step();
      status = runtime->WaitForStep();
    }
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 0"), HasSubstr("custom of matrix 'm0' in step 0"),
                      HasSubstr("stream bad")));
  });
}

TEST(RaisingRule, ACallOfTheRuntimeFromInsideARuleIsRefused) {
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    RankModel model({{4, 4}}, Layout::kReplicated, GradientKind::kLocal, 0, 1, 5);
    Runtime* running = nullptr;
    absl::Status refused;
    CustomRule rule;
    rule.enqueue = [&](const RuleContext&) -> absl::Status {
      refused = running->Step();
      return absl::OkStatus();
    };
    auto runtime = Commit(testing::OptionsFor({1, 1}), rank, model, rule);
    running = runtime.get();
    SubmitAll(*runtime, model, 0);
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("rule"));
  });
}

// Of the transport; what makes a world of GPUs takes longer.
constexpr absl::Duration kDeadline = absl::Milliseconds(testing::kUnderFakes ? 2000 : 300);

class ForcedHang : public ::testing::TestWithParam<absl::Duration> {};

// Whatever the host's own deadline: the transport's names who is late.
TEST_P(ForcedHang, EndsAtTheDeadlineAndLeavesTheDecisions) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid, .deadline = kDeadline}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
    RuntimeOptions options = testing::OptionsFor(grid);
    options.deadline = GetParam();
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
      // Another lane may have told of the failure before the one that met it has written it down.
      std::string ring;
      while (!absl::StrContains(ring, "failed reduce")) ring = runtime->DescribeDecisions();
      EXPECT_THAT(ring, HasSubstr("submitted 'm0'"));
      EXPECT_THAT(ring, HasSubstr("started reduce 'm2'"));
      EXPECT_THAT(ring, HasSubstr("failed reduce 'm2'"));
    } else {
      // Never submits; learns from its peer that the world has ended.
      AwaitFailure(rank.transport);
      EXPECT_FALSE(runtime->Step().ok() && runtime->WaitForStep().ok());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(HostDeadlines, ForcedHang,
                         ::testing::Values(absl::Milliseconds(30), kDeadline, absl::Seconds(120)));

// A wait that no peer can be blamed for: the trainer's own event never comes.
TEST(OwnStream, OneThatIsStuckIsToldWithWhatItStandsAt) {
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, 0, 1, 5);
    RuntimeOptions options = testing::OptionsFor({1, 1});
    options.deadline = absl::Milliseconds(100);
    auto runtime = Commit(options, rank, model);
    const auto trainer = rank.device.CreateStream("trainer");
    const auto ready = rank.device.CreateEvent();
    std::promise<void> release;
    trainer->Enqueue([&] {
      release.get_future().wait();
      return absl::OkStatus();
    });
    trainer->Record(*ready);
    for (int m = 2; m >= 0; --m) {
      ASSERT_TRUE(
          runtime
              ->Submit({.matrix = m, .gradient = model.Gradient(m, 0).data(), .ready = ready.get()})
              .ok());
    }
    ASSERT_TRUE(runtime->Step().ok());
    const absl::Status late = runtime->WaitForLayer(1);
    release.set_value();
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(late.message()),
                AllOf(HasSubstr("rank 0 waited 100ms for matrix 'm1'"), HasSubstr("lanes")));
  });
}

// The first of a pair has not begun while the second waits for this rank's own event: nobody else
// can end the wait.
TEST(OwnStream, APairThatIsStuckIsToldByTheRankThatHoldsItUp) {
  const ProcessGrid grid{1, 2};
  std::promise<void> release, told;
  std::shared_future<void> released = release.get_future().share();
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model({{6, 4}, {6, 4}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 5);
    RuntimeOptions options = testing::OptionsFor(grid);
    options.limits.bucket_bytes = 0;
    options.ownership.owners = {0, 1};
    options.costs = testing::CostsWithPairs(options.topology);
    if (rank.rank == 0) options.deadline = absl::Milliseconds(100);
    auto runtime = Commit(options, rank, model);
    ASSERT_TRUE(runtime->plan().ops[0].with_next) << "nothing is tested";
    const auto trainer = rank.device.CreateStream("trainer");
    const auto ready = rank.device.CreateEvent();
    if (rank.rank == 0) {
      trainer->Enqueue([&] {
        released.wait();
        return absl::OkStatus();
      });
    }
    trainer->Record(*ready);
    const std::vector<float> first = model.Gradient(1, 0), second = model.Gradient(0, 0);
    ASSERT_TRUE(runtime->Submit({.matrix = 1, .gradient = first.data()}).ok());
    ASSERT_TRUE(
        runtime->Submit({.matrix = 0, .gradient = second.data(), .ready = ready.get()}).ok());
    ASSERT_TRUE(runtime->Step().ok());
    const absl::Status late = runtime->WaitForStep();
    if (rank.rank == 1) {
      told.set_value();
    } else {
      // Not before, or the pair may still come to its end on both.
      testing::Blocking([&] { told.get_future().wait(); });
      release.set_value();
    }
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
    EXPECT_THAT(std::string(late.message()), HasSubstr("rank 0 waited 100ms for step 0"));
  });
}

}  // namespace
}  // namespace weft
