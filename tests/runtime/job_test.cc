// A job's stages: waiting on a stream, callbacks, the completion queue; and the gradient's life.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>

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

TEST(Job, EveryStageIsDeliveredOnceAndInOrderOnEveryRank) {
  const ProcessGrid grid{2, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    CompletionQueue queue;
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 4, 3);
    RuntimeOptions options = testing::OptionsFor(grid);
    options.completions = &queue;
    auto runtime = Commit(options, rank, model);
    std::mutex mutex;
    std::map<int, std::vector<Stage>> called;
    for (int m = 2; m >= 0; --m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      const Job job = *runtime->Submit({.matrix = m, .gradient = gradient.data()});
      EXPECT_EQ(job.matrix(), RankModel::NameOf(m));
      EXPECT_EQ(job.step(), 0);
      for (int stage = 0; stage < kStageCount; ++stage) {
        job.OnStage(static_cast<Stage>(stage), [&, m, stage](const absl::Status& status) {
          EXPECT_TRUE(status.ok()) << status;
          const std::lock_guard<std::mutex> lock(mutex);
          called[m].push_back(static_cast<Stage>(stage));
        });
      }
    }
    ASSERT_TRUE(runtime->Step().ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
    std::map<int, std::vector<Stage>> stages;
    for (int i = 0; i < 3 * kStageCount; ++i) {
      const auto completion = queue.Next(absl::Seconds(60));
      ASSERT_TRUE(completion.has_value());
      EXPECT_TRUE(completion->status.ok());
      stages[completion->matrix].push_back(completion->stage);
    }
    EXPECT_FALSE(queue.Poll().has_value());
    std::vector<Stage> all;
    for (int stage = 0; stage < kStageCount; ++stage) all.push_back(static_cast<Stage>(stage));
    const std::lock_guard<std::mutex> lock(mutex);
    for (int m = 0; m < 3; ++m) {
      EXPECT_EQ(stages[m], all);
      EXPECT_EQ(called[m], all);
    }
  });
}

TEST(Job, ACallbackThatThrowsKeepsNobodyFromBeingTold) {
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    CompletionQueue queue;
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, 0, 1, 3);
    RuntimeOptions options = testing::OptionsFor({1, 1});
    options.completions = &queue;
    auto runtime = Commit(options, rank, model);
    std::vector<Job> jobs;
    std::atomic<int> told = 0;
    for (int m = 2; m >= 0; --m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      jobs.push_back(*runtime->Submit({.matrix = m, .gradient = gradient.data()}));
      jobs.back().OnStage(Stage::kDelivered,
                          [](const absl::Status&) { throw std::runtime_error("observer"); });
      jobs.back().OnStage(Stage::kDelivered, [&](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        ++told;
      });
    }
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
    for (int i = 0; i < 3 * kStageCount; ++i) {
      const auto completion = queue.Next(absl::Seconds(60));
      ASSERT_TRUE(completion.has_value());
      EXPECT_TRUE(completion->status.ok()) << completion->status;
    }
    // A stage that is over calls at once, under the same rule.
    EXPECT_NO_THROW(jobs[0].OnStage(Stage::kDelivered, [](const absl::Status&) { throw 7; }));
    runtime.reset();  // callbacks may still run until then
    EXPECT_EQ(told, 3);
  });
}

TEST(Job, WaitOnRefusesWhatIsNotIssuedAndOrdersWhatIs) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 3);
    auto runtime = Commit(testing::OptionsFor(grid), rank, model);
    const auto stream = rank.device.CreateStream("trainer");
    std::vector<Job> jobs;
    for (int m = 0; m < 3; ++m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      jobs.push_back(*runtime->Submit({.matrix = m, .gradient = gradient.data()}));
      if (m == 0) {
        // The plan reduces m2 first, so m0's reduction is not issued yet.
        const absl::Status early = jobs[0].WaitOn(*stream, Stage::kReduced);
        EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(early.message()), HasSubstr("'m0'"));
      }
    }
    EXPECT_TRUE(jobs[0].WaitOn(*stream, Stage::kReduced).ok());
    EXPECT_EQ(jobs[0].Wait(Stage::kDelivered, absl::Seconds(1)).code(),
              absl::StatusCode::kFailedPrecondition)
        << "before Step()";
    ASSERT_TRUE(runtime->Step().ok());
    for (const Job& job : jobs) EXPECT_TRUE(job.WaitOn(*stream, Stage::kDelivered).ok());
    std::vector<std::vector<float>> seen;
    stream->Enqueue([&] {
      seen = model.weights();
      return absl::OkStatus();
    });
    ASSERT_TRUE(stream->Synchronize(absl::Seconds(60)).ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
    EXPECT_EQ(seen, model.weights()) << "the stream saw every weight delivered";
    EXPECT_TRUE(*jobs[1].Reached(Stage::kDelivered));
  });
}

TEST(Job, ParameterNeededOrdersTheCallersStreamBehindDelivery) {
  const ProcessGrid grid{2, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 4, 3);
    auto runtime = Commit(testing::OptionsFor(grid), rank, model);
    const auto stream = rank.device.CreateStream("trainer");
    ASSERT_TRUE(runtime->ParameterNeeded(0, *stream).ok()) << "a no-op before the first step";
    for (int m = 2; m >= 0; --m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
    }
    ASSERT_TRUE(runtime->Step(stream.get()).ok());
    std::vector<std::vector<float>> seen(3);
    for (int m = 0; m < 3; ++m) {
      ASSERT_TRUE(runtime->ParameterNeeded(m, *stream).ok());
      stream->Enqueue([&, m] {
        seen[m] = model.weight(m);
        return absl::OkStatus();
      });
    }
    EXPECT_EQ(runtime->ParameterNeeded(17, *stream).code(), absl::StatusCode::kNotFound);
    ASSERT_TRUE(stream->Synchronize(absl::Seconds(60)).ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
    EXPECT_EQ(seen, model.weights());
  });
}

// Step(caller): weights are not written while work that the caller has enqueued still reads them.
TEST(Job, StepWaitsForTheCallersReads) {
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, 0, 1, 3);
    auto runtime = Commit(testing::OptionsFor({1, 1}), rank, model);
    const auto before = model.weights();
    const auto stream = rank.device.CreateStream("trainer");
    std::promise<void> go_on;
    std::vector<std::vector<float>> read;
    stream->Enqueue([&] {
      go_on.get_future().wait();
      read = model.weights();
      return absl::OkStatus();
    });
    std::vector<Job> jobs;
    for (int m = 0; m < 3; ++m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      jobs.push_back(*runtime->Submit({.matrix = m, .gradient = gradient.data()}));
    }
    ASSERT_TRUE(runtime->Step(stream.get()).ok());
    // Everything up to the write runs meanwhile.
    ASSERT_TRUE(jobs[0].Wait(Stage::kOrthogonalized, absl::Seconds(60)).ok());
    EXPECT_FALSE(*jobs[0].Reached(Stage::kApplied));
    go_on.set_value();
    ASSERT_TRUE(runtime->WaitForStep().ok());
    EXPECT_EQ(read, before);
    EXPECT_NE(model.weights(), before);
  });
}

// Case 21: without an event the buffer is the caller's again when Submit() returns; with one it is
// after the reduction. Both for 500 steps, with equal bits on all ranks and in both ways.
TEST(Job, ARefilledGradientBufferChangesNothing) {
  const ProcessGrid grid{2, 2};
  std::array<std::vector<std::vector<std::vector<float>>>, 2> weights;
  for (const bool with_event : {false, true}) {
    weights[with_event].resize(4);
    RunWorld({.grid = grid}, [&](testing::Rank rank) {
      RankModel model({{6, 4}, {4, 6}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 4, 3);
      auto runtime = Commit(testing::OptionsFor(grid), rank, model);
      const auto stream = rank.device.CreateStream("trainer");
      const auto ready = rank.device.CreateEvent();
      std::vector<std::vector<float>> buffers = {std::vector<float>(24), std::vector<float>(24)};
      const testing::Pinned pins[] = {{buffers[0].data(), 96}, {buffers[1].data(), 96}};
      for (int step = 0; step < 500; ++step) {
        for (int m = 1; m >= 0; --m) {
          const std::vector<float> gradient = model.Gradient(m, step % 5);
          if (!with_event) {
            auto buffer = std::make_unique<std::vector<float>>(gradient);
            ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = buffer->data()}).ok());
            std::fill(buffer->begin(), buffer->end(), -1e30f);
            buffer.reset();
            continue;
          }
          stream->Enqueue([&buffer = buffers[m], gradient] {
            buffer = gradient;
            return absl::OkStatus();
          });
          stream->Record(*ready);
          const auto job =
              runtime->Submit({.matrix = m, .gradient = buffers[m].data(), .ready = ready.get()});
          ASSERT_TRUE(job.ok()) << job.status();
        }
        ASSERT_TRUE(runtime->Step().ok());
        if (with_event) {
          ASSERT_TRUE(runtime->WaitForStep().ok());
        }
      }
      ASSERT_TRUE(runtime->WaitForStep().ok());
      weights[with_event][rank.rank] = model.weights();
    });
    for (const auto& rank : weights[with_event]) EXPECT_EQ(rank, weights[with_event][0]);
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// Case 21: a second Step() without jobs is a step in which every gradient is missing.
TEST(Job, SteppingTwiceIsAStepWithoutGradients) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 3);
    auto runtime = Commit(testing::OptionsFor(grid), rank, model);
    for (int m = 2; m >= 0; --m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
    }
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_EQ(runtime->Step().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(runtime->WaitForStep().code(), absl::StatusCode::kFailedPrecondition);
    for (const MatrixCounters& counters : runtime->Counters()) {
      EXPECT_EQ(counters.last_gradient_step, 0) << counters.name;
    }
  });
}

// Case 21: leaving with publishes in flight completes them.
TEST(Job, LeavingWithAPublishInFlightCompletesIt) {
  const ProcessGrid grid{2, 2};
  std::vector<std::vector<std::vector<float>>> weights(4);
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, 4, 3);
    const auto before = model.weights();
    Job last;
    {
      auto runtime = Commit(testing::OptionsFor(grid), rank, model);
      for (int m = 2; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, 0);
        last = *runtime->Submit({.matrix = m, .gradient = gradient.data()});
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    EXPECT_TRUE(*last.Reached(Stage::kDelivered)) << "a handle may outlive its runtime";
    EXPECT_NE(model.weights(), before);
    weights[rank.rank] = model.weights();
  });
  for (const auto& rank : weights) EXPECT_EQ(rank, weights[0]);
}

TEST(Job, ACallersRuleGetsWholeGradientStateAndWeight) {
  const ProcessGrid grid{2, 2};
  for (const auto& [strategy, layout] : {std::pair{Strategy::kReplicated, Layout::kReplicated},
                                         std::pair{Strategy::kGather, Layout::kSharded},
                                         std::pair{Strategy::kOwner, Layout::kReplicated},
                                         std::pair{Strategy::kOwner, Layout::kSharded}}) {
    for (const GradientKind kind : {GradientKind::kLocal, GradientKind::kReduced}) {
      RunWorld({.grid = grid}, [&, strategy = strategy, layout = layout](testing::Rank rank) {
        RankModel model({{7, 3}, {3, 8}}, layout, kind, rank.rank, 4, 3);
        // SGD with momentum 0.5 and a state that counts: state <- state / 2 + mean gradient.
        CustomRule rule;
        rule.enqueue = [](const RuleContext& context) {
          context.stream.Enqueue([context] {
            const auto* gradient = static_cast<const float*>(context.gradient);
            auto* weight = static_cast<float*>(context.weight);
            for (std::int64_t i = 0; i < context.rows * context.cols; ++i) {
              context.state[i] = context.state[i] / 2 + gradient[i] * context.gradient_scale;
              weight[i] -= static_cast<float>(context.lr) * context.state[i];
            }
            return absl::OkStatus();
          });
          return absl::OkStatus();
        };
        auto runtime = Commit(testing::OptionsFor(grid, strategy), rank, model, rule);
        std::vector<std::vector<double>> expected, state;
        for (std::size_t m = 0; m < model.size(); ++m) {
          const std::vector<float> whole = testing::Normal(model.Size(m), 3, 1, m);
          expected.emplace_back(whole.begin(), whole.end());
          state.emplace_back(whole.size(), 0.0);
        }
        for (int step = 0; step < 3; ++step) {
          for (int m = 1; m >= 0; --m) {
            const std::vector<float> gradient = model.Gradient(m, step);
            ASSERT_TRUE(
                runtime->Submit({.matrix = m, .gradient = gradient.data(), .lr = 0.25}).ok());
            const std::vector<float> mean = model.MeanGradient(m, step);
            for (std::size_t i = 0; i < mean.size(); ++i) {
              state[m][i] = state[m][i] / 2 + mean[i];
              expected[m][i] -= 0.25 * state[m][i];
            }
          }
          ASSERT_TRUE(runtime->Step().ok());
        }
        const absl::Status done = runtime->WaitForStep();
        ASSERT_TRUE(done.ok()) << done;
        for (std::size_t m = 0; m < model.size(); ++m) {
          const std::vector<float> whole(expected[m].begin(), expected[m].end());
          const std::vector<float> own = model.OwnRows(m, whole);
          ASSERT_EQ(own.size(), model.weight(m).size());
          for (std::size_t i = 0; i < own.size(); ++i) {
            ASSERT_NEAR(model.weight(m)[i], own[i], 1e-5)
                << Name(strategy) << " " << Name(layout) << " " << Name(kind) << " m" << m;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace weft
