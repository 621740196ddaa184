// Layout owned: weights live on their owners and come for the time of a layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/seed.h"
#include "tests/support/world.h"
#include "weft/runtime.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::OptionsFor;
using testing::RankModel;
using testing::RunWorld;

constexpr std::uint64_t kSeed = 20261130;
constexpr int kLayers = 5;
constexpr int kPerLayer = 3;
constexpr int kSteps = 4;

// Per layer: two matrices of unlike shapes, and a vector for AdamW.
const std::vector<testing::Shape>& Shapes() {
  static const std::vector<testing::Shape> shapes = [] {
    std::vector<testing::Shape> all;
    for (int layer = 0; layer < kLayers; ++layer) {
      all.push_back({12 + layer, 20});
      all.push_back({16, 9});
      all.push_back({1, 20});
    }
    return all;
  }();
  return shapes;
}

MatrixSpec SpecOf(RankModel& model, std::size_t m, Layout layout) {
  Rule rule = MuonOptions{};
  if (m % kPerLayer == 2) rule = AdamWOptions{};
  MatrixSpec spec = model.Spec(m, rule);
  spec.layout = layout;
  spec.layer = static_cast<int>(m) / kPerLayer;
  return spec;
}

std::unique_ptr<Runtime> Commit(const RuntimeOptions& options, testing::Rank rank, RankModel& model,
                                Layout layout) {
  auto runtime = *Runtime::Create(options, rank.device, rank.transport);
  for (std::size_t m = 0; m < model.size(); ++m) {
    EXPECT_TRUE(runtime->AddMatrix(SpecOf(model, m, layout)).ok());
  }
  const absl::Status status = runtime->Commit();
  EXPECT_TRUE(status.ok()) << status;
  return runtime;
}

// One of `parts` equal parts of the gradients: halves lose no bit.
void SubmitLayer(Runtime& runtime, const RankModel& model, int layer, int step, int part = 0,
                 int parts = 1) {
  for (int i = kPerLayer - 1; i >= 0; --i) {
    const int m = layer * kPerLayer + i;
    std::vector<float> gradient = model.Gradient(m, step);
    for (float& value : gradient) value /= static_cast<float>(parts);
    const auto job =
        runtime.Submit({.matrix = m, .gradient = gradient.data(), .more = part + 1 < parts});
    ASSERT_TRUE(job.ok()) << job.status();
  }
}

using Weights = std::vector<std::vector<float>>;  // by matrix

// Weights before each step, as the replicated layout has them.
std::vector<Weights> Replicated(const ProcessGrid& grid) {
  std::vector<Weights> history;
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kReplicated, GradientKind::kLocal, rank.rank, grid.size(),
                    kSeed);
    auto runtime = Commit(OptionsFor(grid), rank, model, Layout::kReplicated);
    for (int step = 0; step <= kSteps; ++step) {
      if (rank.rank == 0) history.push_back(model.weights());
      if (step == kSteps) break;
      for (int layer = kLayers - 1; layer >= 0; --layer) SubmitLayer(*runtime, model, layer, step);
      ASSERT_TRUE(runtime->Step().ok());
      ASSERT_TRUE(runtime->WaitForStep().ok());
    }
  });
  return history;
}

void ExpectLayer(const Runtime& runtime, int layer, const Weights& expected, int rank) {
  for (int i = 0; i < kPerLayer; ++i) {
    const int m = layer * kPerLayer + i;
    const auto weight = runtime.Parameter(m);
    ASSERT_TRUE(weight.ok());
    if (i < 2) {
      EXPECT_EQ(std::memcmp(*weight, expected[m].data(), expected[m].size() * sizeof(float)), 0)
          << "matrix " << m << " on rank " << rank;
      continue;
    }
    // AdamW's gradients are summed by levels here, at once in the replicated layout.
    for (std::size_t e = 0; e < expected[m].size(); ++e) {
      EXPECT_NEAR(static_cast<const float*>(*weight)[e], expected[m][e], 1e-5);
    }
  }
}

struct Way {
  const char* name;
  ProcessGrid grid;
  PlanLimits limits;
};

PlanLimits InPieces() {
  PlanLimits limits;
  limits.bucket_bytes = 0;
  limits.piece_bytes = 100;
  return limits;
}

PlanLimits Ahead(int inter, int intra, bool keep = false, int passes = 1) {
  PlanLimits limits;
  limits.inter_layers_ahead = inter;
  limits.intra_layers_ahead = intra;
  limits.keep_through_backward = keep;
  limits.passes = passes;
  return limits;
}

PlanLimits Each(PlanLimits limits) {
  limits.reduce_each_pass = true;
  return limits;
}

// Jobs of each matrix in a step.
int Parts(const Way& way) { return way.limits.reduce_each_pass ? way.limits.passes : 1; }

const std::vector<Way>& Ways() {
  static const std::vector<Way> ways = {
      {"alone", {1, 1}, Ahead(2, 1)},
      {"one_node", {1, 3}, Ahead(1, 1)},
      {"just_in_time", {2, 2}, Ahead(0, 0)},
      {"one_rank_per_node", {3, 1}, Ahead(2, 0)},
      {"staggered", {2, 2}, Ahead(2, 0)},
      {"ahead", {2, 3}, Ahead(3, 2)},
      {"kept", {2, 2}, Ahead(2, 1, true)},
      {"far_ahead", {2, 2}, Ahead(9, 9)},
      {"two_passes", {2, 2}, Ahead(1, 1, false, 2)},
      {"two_passes_kept", {1, 2}, Ahead(1, 1, true, 2)},
      {"two_passes_each_reduced", {2, 2}, Each(Ahead(1, 1, false, 2))},
      {"two_passes_each_reduced_and_kept", {1, 2}, Each(Ahead(2, 1, true, 2))},
      {"in_pieces", {2, 2}, InPieces()},
  };
  return ways;
}

class Owned : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, Owned, ::testing::ValuesIn(Ways()),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(Owned, EveryPassSeesTheWeightsOfItsStepBitForBit) {
  const Way& way = GetParam();
  const std::vector<Weights> history = Replicated(way.grid);
  RunWorld({.grid = way.grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, way.grid.size(),
                    kSeed);
    RuntimeOptions options = OptionsFor(way.grid);
    options.limits = way.limits;
    auto runtime = Commit(options, rank, model, Layout::kOwned);
    const auto visit = [&](int layer, int step) {
      ASSERT_TRUE(runtime->WaitForLayer(layer).ok());
      ExpectLayer(*runtime, layer, history[step], rank.rank);
    };
    for (int step = 0; step < kSteps; ++step) {
      for (int pass = 0; pass < way.limits.passes; ++pass) {
        for (int layer = 0; layer < kLayers; ++layer) {
          visit(layer, step);
          ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
        }
        for (int layer = kLayers - 1; layer >= 0; --layer) {
          visit(layer, step);
          const int part = pass - way.limits.passes + Parts(way);
          if (part >= 0) SubmitLayer(*runtime, model, layer, step, part, Parts(way));
          ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
        }
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    // The last step's weights, without a release before the next need.
    for (int layer = 0; layer < kLayers; ++layer) {
      visit(layer, kSteps);
      ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
    }
  });
}

TEST_P(Owned, StreamsWaitForWeightsAndHoldThemUntilTheyRelease) {
  const Way& way = GetParam();
  const std::vector<Weights> history = Replicated(way.grid);
  RunWorld({.grid = way.grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, way.grid.size(),
                    kSeed);
    RuntimeOptions options = OptionsFor(way.grid);
    options.limits = way.limits;
    auto runtime = Commit(options, rank, model, Layout::kOwned);
    // Layers alternate between two streams.
    std::array<std::unique_ptr<Stream>, 2> streams = {rank.device.CreateStream("even"),
                                                      rank.device.CreateStream("odd")};
    const auto visit = [&](int layer, int step) {
      Stream& stream = *streams[layer % 2];
      ASSERT_TRUE(runtime->ParameterNeeded(layer, stream).ok());
      stream.Enqueue([&runtime, &history, layer, step, &rank] {
        ExpectLayer(*runtime, layer, history[step], rank.rank);
        return absl::OkStatus();
      });
      ASSERT_TRUE(runtime->ParameterReleased(layer, &stream).ok());
    };
    for (int step = 0; step < kSteps; ++step) {
      for (int pass = 0; pass < way.limits.passes; ++pass) {
        for (int layer = 0; layer < kLayers; ++layer) visit(layer, step);
        for (int layer = kLayers - 1; layer >= 0; --layer) {
          visit(layer, step);
          const int part = pass - way.limits.passes + Parts(way);
          if (part >= 0) SubmitLayer(*runtime, model, layer, step, part, Parts(way));
        }
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    for (const auto& stream : streams) {
      ASSERT_TRUE(stream->Synchronize(absl::Seconds(120)).ok());
    }
    ASSERT_TRUE(runtime->WaitForStep().ok());
  });
}

// A pass may leave layers out, a step may come without a release, or without any use at all.
TEST_P(Owned, PassesMayBeIncomplete) {
  const Way& way = GetParam();
  const std::vector<Weights> history = Replicated(way.grid);
  RunWorld({.grid = way.grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, way.grid.size(),
                    kSeed);
    RuntimeOptions options = OptionsFor(way.grid);
    options.limits = way.limits;
    auto runtime = Commit(options, rank, model, Layout::kOwned);
    for (int step = 0; step < kSteps; ++step) {
      // Ranks differ in what they use: none of it changes which collectives are issued.
      const int first = (step + rank.rank) % kLayers;
      if (step != 1) {
        ASSERT_TRUE(runtime->WaitForLayer(first).ok());
        ExpectLayer(*runtime, first, history[step], rank.rank);
      }
      for (int part = 0; part < Parts(way); ++part) {
        if (part > 0 && step != 1) {
          ASSERT_TRUE(runtime->ParameterReleased(first).ok());
        }
        for (int layer = kLayers - 1; layer >= 0; --layer) {
          SubmitLayer(*runtime, model, layer, step, part, Parts(way));
        }
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    ASSERT_TRUE(runtime->WaitForStep().ok());
    EXPECT_THAT(runtime->WithoutGradient(1), IsEmpty()) << "told by rank " << rank.rank;
    ASSERT_TRUE(runtime->WaitForLayer(1).ok());
    ExpectLayer(*runtime, 1, history[kSteps], rank.rank);
  });
}

TEST(OwnedCalls, AReductionInEachPassFetchesNoMore) {
  RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, 0, 4, kSeed);
  std::vector<MatrixSpec> specs;
  for (std::size_t m = 0; m < model.size(); ++m) specs.push_back(SpecOf(model, m, Layout::kOwned));
  const auto fetches = [&](const PlanLimits& limits) {
    RuntimeOptions options = OptionsFor({2, 2});
    options.limits = limits;
    std::vector<std::pair<std::int32_t, std::int32_t>> all;  // use and matrix
    const absl::StatusOr<Plan> plan = PlanFor(specs, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    for (const Op& op : plan.ok() ? plan->ops : std::vector<Op>()) {
      if (op.kind == OpKind::kBroadcast) all.emplace_back(op.use, op.matrix);
    }
    return all;
  };
  for (const PlanLimits& limits : {Ahead(1, 0, false, 3), Ahead(2, 2, true, 3)}) {
    EXPECT_FALSE(fetches(limits).empty());
    EXPECT_EQ(fetches(limits), fetches(Each(limits)));
  }
}

// The weights that are held may keep the pass before from being over.
TEST(OwnedCalls, AMicroStepBeginsWhenTheReductionsOfTheLastAreIssued) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, 2, kSeed);
    RuntimeOptions options = OptionsFor(grid);
    options.limits = Each(Ahead(1, 1, false, 2));
    auto runtime = Commit(options, rank, model, Layout::kOwned);
    ASSERT_TRUE(runtime->WaitForLayer(0).ok());
    for (int layer = kLayers - 1; layer >= 0; --layer) SubmitLayer(*runtime, model, layer, 0, 0, 2);
    const std::vector<float> gradient = model.Gradient(0, 0);
    const MatrixJob job{.matrix = 0, .gradient = gradient.data()};
    const absl::Status refused = runtime->Submit(job).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("micro-step 2"), HasSubstr("reduce of matrix 'm"),
                      HasSubstr("release of layers")));
    ASSERT_TRUE(runtime->ParameterReleased(0).ok());
    for (int layer = kLayers - 1; layer >= 0; --layer) SubmitLayer(*runtime, model, layer, 0, 1, 2);
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
  });
}

// A refusal changes nothing: the pass goes on where it stood.
TEST(OwnedCalls, AJobOfTheNextMicroStepThatIsTooEarlyEndsNoUse) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, 2, kSeed);
    RuntimeOptions options = OptionsFor(grid);
    options.limits = Each(Ahead(1, 1, false, 2));
    auto runtime = Commit(options, rank, model, Layout::kOwned);
    for (int pass = 0; pass < 2; ++pass) {
      for (int layer = 0; layer < kLayers; ++layer) {
        ASSERT_TRUE(runtime->WaitForLayer(layer).ok());
        ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
      }
      for (int layer = kLayers - 1; layer >= 0; --layer) {
        const absl::Status needed = runtime->WaitForLayer(layer);
        ASSERT_TRUE(needed.ok()) << "pass " << pass << ": " << needed;
        ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
        SubmitLayer(*runtime, model, layer, 0, pass, 2);
        if (pass > 0 || layer == 0) continue;
        const int m = layer * kPerLayer;
        const std::vector<float> gradient = model.Gradient(m, 0);
        const absl::Status early =
            runtime->Submit({.matrix = m, .gradient = gradient.data()}).status();
        EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(early.message()),
                    AllOf(HasSubstr("micro-step 2 of step 0 cannot begin: matrix 'm0'"),
                          HasSubstr("no gradient of the one before")));
      }
    }
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
  });
}

TEST(OwnedCalls, OutOfPlaceAreRefusedInOneSentence) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, 2, kSeed);
    RuntimeOptions options = OptionsFor(grid);
    options.limits = Ahead(1, 1);
    auto runtime = Commit(options, rank, model, Layout::kOwned);
    const auto text = [](const absl::Status& status) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      return std::string(status.message());
    };
    EXPECT_THAT(text(runtime->ParameterReleased(0)), HasSubstr("layer 0 is not held"));
    EXPECT_EQ(runtime->WaitForLayer(99).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(runtime->ParameterReleased(99).code(), absl::StatusCode::kNotFound);
    ASSERT_TRUE(runtime->WaitForLayer(0).ok());
    ASSERT_TRUE(runtime->WaitForLayer(1).ok());
    EXPECT_THAT(text(runtime->ParameterReleased(1)),
                AllOf(HasSubstr("layer 1 "), HasSubstr("layer 0")));
    // Two layers are held, and both places are taken.
    EXPECT_THAT(text(runtime->WaitForLayer(2)),
                AllOf(HasSubstr("layer 2"), HasSubstr("not issued")));
    ASSERT_TRUE(runtime->ParameterReleased(0).ok());
    EXPECT_TRUE(runtime->WaitForLayer(2).ok());
    for (int layer = kLayers - 1; layer >= 0; --layer) SubmitLayer(*runtime, model, layer, 0);
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
  });
}

// Registered behind the owned ones, as parameter groups are, or beside them.
TEST(OwnedCalls, MatricesOfOtherLayoutsDoNotHoldBackWhatTheirLayersNeed) {
  for (const bool behind : {false, true}) {
    const ProcessGrid grid{2, 2};
    RunWorld({.grid = grid}, [&](testing::Rank rank) {
      std::vector<testing::ModelMatrix> matrices;
      std::vector<int> layers;
      const auto add = [&](int layer, Layout layout) {
        matrices.push_back({{6, 5}, layout});
        layers.push_back(layer);
      };
      for (int layer = 0; layer < kLayers; ++layer) {
        add(layer, Layout::kOwned);
        if (!behind) add(layer, Layout::kReplicated);
      }
      for (int layer = 0; behind && layer < kLayers; ++layer) add(layer, Layout::kReplicated);
      RankModel model(matrices, rank.rank, grid.size(), kSeed);
      RuntimeOptions options = OptionsFor(grid);
      options.limits = Ahead(0, 0);
      options.limits.bucket_bytes = 0;
      auto runtime = *Runtime::Create(options, rank.device, rank.transport);
      for (std::size_t m = 0; m < model.size(); ++m) {
        MatrixSpec spec = model.Spec(m, MuonOptions{});
        spec.layer = layers[m];
        ASSERT_TRUE(runtime->AddMatrix(spec).ok());
      }
      const absl::Status committed = runtime->Commit();
      ASSERT_TRUE(committed.ok()) << committed;
      for (int step = 0; step < 3; ++step) {
        for (int layer = 0; layer < kLayers; ++layer) {
          ASSERT_TRUE(runtime->WaitForLayer(layer).ok());
          ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
        }
        for (int layer = kLayers - 1; layer >= 0; --layer) {
          const absl::Status needed = runtime->WaitForLayer(layer);
          ASSERT_TRUE(needed.ok()) << needed;
          for (std::size_t m = 0; m < model.size(); ++m) {
            if (layers[m] != layer) continue;
            const std::vector<float> gradient = model.Gradient(m, step);
            ASSERT_TRUE(
                runtime->Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradient.data()})
                    .ok());
          }
          ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
        }
        ASSERT_TRUE(runtime->Step().ok());
      }
      EXPECT_TRUE(runtime->WaitForStep().ok());
    });
  }
}

// The refused call has enqueued on the stream what must not outlive it.
TEST(OwnedCalls, ARefusedNeedLeavesItsStreamSound) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, 2, kSeed);
    RuntimeOptions options = OptionsFor(grid);
    options.limits = Ahead(0, 0);
    auto runtime = Commit(options, rank, model, Layout::kOwned);
    const std::unique_ptr<Stream> gate = rank.device.CreateStream("gate");
    const std::unique_ptr<Stream> stream = rank.device.CreateStream("blocked");
    const std::unique_ptr<Event> open = rank.device.CreateEvent();
    std::promise<void> opened;
    gate->Enqueue([future = std::make_shared<std::future<void>>(opened.get_future())] {
      future->wait();
      return absl::OkStatus();
    });
    gate->Record(*open);
    ASSERT_TRUE(runtime->WaitForLayer(0).ok());
    stream->Wait(*open);
    EXPECT_EQ(runtime->ParameterNeeded(1, *stream).code(), absl::StatusCode::kFailedPrecondition);
    opened.set_value();
    EXPECT_TRUE(stream->Synchronize(absl::Seconds(120)).ok());
    for (int layer = kLayers - 1; layer >= 0; --layer) SubmitLayer(*runtime, model, layer, 0);
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
  });
}

TEST(OwnedCalls, AStepHasItsPassesAndNoMore) {
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, 0, 1, kSeed);
    auto runtime = Commit(OptionsFor({1, 1}), rank, model, Layout::kOwned);
    ASSERT_TRUE(runtime->WaitForLayer(2).ok());
    ASSERT_TRUE(runtime->WaitForLayer(2).ok());  // backward; the forward use is released
    const absl::Status third = runtime->WaitForLayer(2);
    EXPECT_EQ(third.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(third.message()), HasSubstr("layer 2 has been needed in every pass"));
    for (int layer = kLayers - 1; layer >= 0; --layer) SubmitLayer(*runtime, model, layer, 0);
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForLayer(2).ok());
  });
}

TEST(OwnedCalls, ABucketMayBeginWithAnEmptyMatrix) {
  const ProcessGrid grid{1, 2};
  // The large one makes the others small enough for a bucket.
  const std::vector<testing::Shape> shapes = {{0, 9}, {12, 9}, {8, 5}, {128, 128}, {2, 9}, {8, 5}};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(shapes, Layout::kOwned, GradientKind::kLocal, rank.rank, 2, kSeed);
    auto runtime = Commit(OptionsFor(grid), rank, model, Layout::kOwned);
    ASSERT_GE(runtime->plan().matrices[0].bucket, 0) << "nothing is tested";
    ASSERT_TRUE(runtime->WaitForLayer(0).ok());
    EXPECT_EQ(*runtime->Parameter(0), nullptr);
    const void* weight = *runtime->Parameter(1);
    EXPECT_EQ(std::memcmp(weight, model.weight(1).data(), 12 * 9 * sizeof(float)), 0);
    for (const int layer : {1, 0}) SubmitLayer(*runtime, model, layer, 0);
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_TRUE(runtime->WaitForStep().ok());
  });
}

TEST(OwnedCalls, TheOwnersFirstWeightMustBeThere) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(Shapes(), Layout::kOwned, GradientKind::kLocal, rank.rank, 2, kSeed);
    auto runtime = *Runtime::Create(OptionsFor(grid), rank.device, rank.transport);
    std::vector<MatrixSpec> specs;
    for (std::size_t m = 0; m < model.size(); ++m) {
      specs.push_back(SpecOf(model, m, Layout::kOwned));
    }
    const auto plan = PlanFor(specs, OptionsFor(grid));
    ASSERT_TRUE(plan.ok()) << plan.status();
    // Only the owner's is looked at.
    for (std::size_t m = 0; m < specs.size(); ++m) {
      if (plan->matrices[m].owner != rank.rank || m == 4) specs[m].weight = nullptr;
      ASSERT_TRUE(runtime->AddMatrix(specs[m]).ok());
    }
    const absl::Status status = runtime->Commit();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'m4': its first weight is null"));
  });
}

TEST(OwnedPlan, HeldBytesAreBoundedAndFewerLayersAreFetchedAhead) {
  std::vector<MatrixSpec> specs;
  for (int layer = 0; layer < 6; ++layer) {
    specs.push_back({.name = "m" + std::to_string(layer),
                     .rows = 64,
                     .cols = 32,
                     .layout = Layout::kOwned,
                     .layer = layer});
  }
  constexpr std::int64_t kLayer = 64 * 32 * 4;
  RuntimeOptions options = OptionsFor({2, 2});
  options.limits = Ahead(3, 3);
  const auto held = [&](std::int64_t bound) {
    options.limits.fetched_bytes = bound;
    const auto plan = PlanFor(specs, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan->limits.inter_layers_ahead : -1;
  };
  EXPECT_EQ(held(0), 3);
  EXPECT_EQ(held(4 * kLayer), 3);
  EXPECT_EQ(held(4 * kLayer - 1), 2);
  EXPECT_EQ(held(kLayer), 0);
  options.limits.fetched_bytes = kLayer - 1;
  const absl::Status status = PlanFor(specs, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("8192 bytes"), HasSubstr("8191 allowed"), HasSubstr("layer 0")));
  options.limits.fetched_bytes = 4 * kLayer;
  options.limits.keep_through_backward = true;
  EXPECT_THAT(std::string(PlanFor(specs, options).status().message()),
              HasSubstr("kept through the backward pass"));
}

TEST(OwnedPlan, OtherStrategiesRefuseIt) {
  const std::vector<MatrixSpec> specs = {
      {.name = "m", .rows = 4, .cols = 4, .layout = Layout::kOwned}};
  for (Strategy strategy : {Strategy::kReplicated, Strategy::kGather}) {
    const absl::Status status = PlanFor(specs, OptionsFor({1, 2}, strategy)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'m'"), HasSubstr("owned")));
  }
}

}  // namespace
}  // namespace weft
