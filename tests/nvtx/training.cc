#include "tests/nvtx/training.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "tests/support/costs.h"
#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft::testing {
namespace {

constexpr std::uint64_t kSeed = 20261130;

PlanLimits InPieces() {
  PlanLimits limits;
  limits.bucket_bytes = 0;
  limits.piece_bytes = 500;
  return limits;
}

PlanLimits Alone() {
  PlanLimits limits;
  limits.bucket_bytes = 0;
  return limits;
}

PlanLimits TwoPasses() {
  PlanLimits limits;
  limits.passes = 2;
  limits.reduce_each_pass = true;
  return limits;
}

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {{16, 24}, {24, 16}, {16, 16}, {1, 20}, {8, 40}, {6, 6}};
  return shapes;
}

Rule RuleOf(int matrix, const TrainingHooks& hooks) {
  if (matrix == 3) return AdamWOptions{};
  if (matrix + 1 < kTrainedLayers) return MuonOptions{};
  CustomRule rule;
  rule.enqueue = [&hooks](const RuleContext& context) {
    hooks.in_rule(context);
    return absl::OkStatus();
  };
  return rule;
}

void TrainRank(const Training& training, const TrainingHooks& hooks, Rank rank,
               TrainedRank& trained) {
  trained.thread = gettid();
  RankModel model(Shapes(), training.layout, GradientKind::kLocal, rank.rank, training.grid.size(),
                  kSeed);
  RuntimeOptions options = OptionsFor(training.grid, training.strategy);
  options.limits = training.limits;
  options.decision_ring = 1 << 16;
  if (training.pairs) {
    options.costs = CostsWithPairs(options.topology);
    options.ownership.owners = {0, 3, 0, -1, 1, 2};
  }
  auto created = Runtime::Create(options, rank.device, rank.transport);
  ASSERT_TRUE(created.ok()) << created.status();
  Runtime& runtime = **created;
  for (int m = 0; m < kTrainedLayers; ++m) {
    const auto added = runtime.AddMatrix(model.Spec(m, RuleOf(m, hooks)));
    ASSERT_TRUE(added.ok()) << added.status();
  }
  const absl::Status committed = runtime.Commit();
  ASSERT_TRUE(committed.ok()) << committed;
  trained.plan = runtime.plan();
  const std::unique_ptr<Stream> stream = rank.device.CreateStream("trainer");
  for (int step = 0; step < kTrainedSteps; ++step) {
    std::vector<Job> jobs;
    for (int part = 0; part < training.parts(); ++part) {
      for (int layer = 0; layer < kTrainedLayers; ++layer) {
        const absl::Status needed = runtime.WaitForLayer(layer);
        ASSERT_TRUE(needed.ok()) << needed;
        ASSERT_TRUE(runtime.ParameterReleased(layer).ok());
      }
      for (int m = kTrainedLayers - 1; m >= 0; --m) {
        const absl::Status needed = runtime.ParameterNeeded(m, *stream);
        ASSERT_TRUE(needed.ok()) << needed;
        const std::vector<float> gradient = model.Gradient(m, step);
        const auto job = runtime.Submit(
            {.matrix = m, .gradient = gradient.data(), .more = part + 1 < training.parts()});
        ASSERT_TRUE(job.ok()) << job.status();
        ASSERT_TRUE(runtime.ParameterReleased(m, stream.get()).ok());
        if (part + 1 < training.parts()) continue;
        jobs.push_back(*job);
        job->OnStage(Stage::kDelivered,
                     [&hooks, thread = trained.thread, m, step](const absl::Status& status) {
                       EXPECT_TRUE(status.ok()) << status;
                       hooks.delivered(thread, m, step);
                     });
      }
    }
    hooks.before_step(jobs);
    ASSERT_TRUE(runtime.Step().ok());
    const absl::Status done = runtime.WaitForStep();
    ASSERT_TRUE(done.ok()) << done;
    hooks.after_step(rank.rank, step);
  }
  // What may be fetched ahead is, so that the end issues nothing more.
  ASSERT_TRUE(runtime.Progress().ok());
  trained.decisions = runtime.Decisions();
  const absl::Status last = stream->Synchronize(absl::Seconds(120));
  ASSERT_TRUE(last.ok()) << last;
}

}  // namespace

const std::vector<Training>& Trainings() {
  static const std::vector<Training> trainings = {
      {.name = "owners"},
      {.name = "owners_alone", .grid = {1, 1}},
      {.name = "owners_in_one_node", .grid = {1, 3}},
      {.name = "owners_of_shards", .layout = Layout::kSharded},
      {.name = "owners_keep_weights", .layout = Layout::kOwned},
      {.name = "owners_in_pieces", .limits = InPieces()},
      {.name = "owners_in_pairs", .limits = Alone(), .pairs = true},
      {.name = "owners_of_micro_steps", .limits = TwoPasses()},
      {.name = "gathered", .layout = Layout::kSharded, .strategy = Strategy::kGather},
      {.name = "replicated", .strategy = Strategy::kReplicated},
  };
  return trainings;
}

std::vector<TrainedRank> Train(const Training& training, const TrainingHooks& hooks) {
  std::vector<TrainedRank> ranks(training.grid.size());
  RunWorld({.grid = training.grid},
           [&](Rank rank) { TrainRank(training, hooks, rank, ranks[rank.rank]); });
  return ranks;
}

}  // namespace weft::testing
