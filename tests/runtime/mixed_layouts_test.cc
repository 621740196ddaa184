// Owned layers beside a matrix in shards, on two levels: collectives of the world stand between the
// fetches, and ranks differ in which parts of those are theirs.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using testing::RankModel;

constexpr ProcessGrid kGrid{2, 2};

// `owned` owned matrices of a layer each, all owned by rank 1, and one in shards under AdamW.
// Nothing is fetched ahead, so that every fetch waits for its use.
struct Trainer {
  Trainer(testing::Rank rank, int owned, const PlanLimits& limits, MissingGradient missing)
      : model(Matrices(owned), rank.rank, kGrid.size(), 3) {
    RuntimeOptions options = testing::OptionsFor(kGrid);
    options.limits = limits;
    options.limits.inter_layers_ahead = options.limits.intra_layers_ahead = 0;
    options.limits.bucket_bytes = 0;
    options.missing_gradient = missing;
    options.ownership.owners.assign(owned, 1);
    options.ownership.owners.push_back(-1);
    stream = rank.device.CreateStream("trainer");
    ready = rank.device.CreateEvent();
    runtime = *Runtime::Create(options, rank.device, rank.transport);
    for (int m = 0; m <= owned; ++m) {
      const Rule rule = m < owned ? Rule(MuonOptions{}) : Rule(AdamWOptions{});
      EXPECT_TRUE(runtime->AddMatrix(model.Spec(m, rule)).ok());
    }
    const absl::Status committed = runtime->Commit();
    EXPECT_TRUE(committed.ok()) << committed;
  }

  static std::vector<testing::ModelMatrix> Matrices(int owned) {
    std::vector<testing::ModelMatrix> matrices(owned, {{8, 6}, Layout::kOwned});
    matrices.push_back({{8, 5}, Layout::kSharded});
    return matrices;
  }

  absl::Status Submit(int m, bool more, bool with_event = false) {
    gradients.push_back(model.Gradient(m, 0));
    MatrixJob job{.matrix = m, .gradient = gradients.back().data(), .more = more};
    if (with_event) {
      stream->Record(*ready);
      job.ready = ready.get();
    }
    return runtime->Submit(job).status();
  }

  // Last: ended before what it reads.
  RankModel model;
  std::vector<std::vector<float>> gradients;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> ready;
  std::unique_ptr<Runtime> runtime;
};

// The zeros that stand in for a missing micro-step must not wait for the end of a use that a rank
// has left out.
TEST(MixedLayouts, AStepThatComesBeforeALastMicroStepEnds) {
  PlanLimits limits;
  limits.passes = 2;
  limits.reduce_each_pass = true;
  for (const MissingGradient missing :
       {MissingGradient::kZero, MissingGradient::kSkip, MissingGradient::kError}) {
    for (const int lacking : {-1, 0, 2}) {  // all ranks, or one
      testing::RunWorld({.grid = kGrid, .deadline = absl::Seconds(30)}, [&](testing::Rank rank) {
        Trainer trainer(rank, 2, limits, missing);
        for (const int m : {2, 1, 0}) ASSERT_TRUE(trainer.Submit(m, true).ok());
        const bool lacks = lacking < 0 || rank.rank == lacking;
        if (!lacks) {
          EXPECT_EQ(trainer.Submit(2, false), absl::OkStatus());
        }
        for (const int m : {1, 0}) ASSERT_TRUE(trainer.Submit(m, false).ok());
        const bool error = missing == MissingGradient::kError;
        EXPECT_EQ(trainer.runtime->Step().ok(), !error || !lacks);
        const absl::Status outcome = trainer.runtime->WaitForStep();
        EXPECT_EQ(outcome.code(),
                  error ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk)
            << outcome;
      });
    }
  }
}

// Nor must a gradient that comes with an event.
TEST(MixedLayouts, AGradientWithAnEventPassesUsesThatWereLeftOut) {
  for (const bool with_event : {false, true}) {
    testing::RunWorld({.grid = kGrid, .deadline = absl::Seconds(30)}, [&](testing::Rank rank) {
      Trainer trainer(rank, 3, {}, MissingGradient::kError);
      Runtime& runtime = *trainer.runtime;
      for (const int layer : {0, 1, 2}) {
        ASSERT_TRUE(runtime.WaitForLayer(layer).ok());
        ASSERT_TRUE(runtime.ParameterReleased(layer).ok());
      }
      ASSERT_TRUE(trainer.Submit(2, false, with_event).ok());
      // Backward, with the uses of layers 2 and 1 left out: refused before the sharded gradient.
      EXPECT_EQ(runtime.WaitForLayer(0).code(), absl::StatusCode::kFailedPrecondition);
      for (const int m : {3, 1}) ASSERT_TRUE(trainer.Submit(m, false, with_event).ok());
      const absl::Status needed = runtime.WaitForLayer(0);
      ASSERT_TRUE(needed.ok()) << needed;
      ASSERT_TRUE(runtime.ParameterReleased(0).ok());
      ASSERT_TRUE(trainer.Submit(0, false, with_event).ok());
      ASSERT_TRUE(runtime.Step().ok());
      const absl::Status outcome = runtime.WaitForStep();
      EXPECT_TRUE(outcome.ok()) << outcome;
    });
  }
}

}  // namespace
}  // namespace weft
