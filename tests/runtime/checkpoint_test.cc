// Saving and loading: a run goes on as if it had never ended, on any grid, strategy and layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/runtime/checkpoint_world.h"
#include "tests/support/forwarding.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/way.h"

namespace weft {
namespace {

using testing::CheckpointMember;
using testing::CheckpointModel;
using ::testing::HasSubstr;
using testing::RunMembers;
using testing::Snapshot;
using testing::TemporaryFolder;
using testing::Way;

MuonOptions Muon() {
  MuonOptions muon;
  muon.weight_decay = 0.1;
  return muon;
}

// The three matrices of case 26.
CheckpointModel Three() {
  return {{"wq", 24, 16, Muon()}, {"norm", 1, 40, testing::SteadyAdamW()}, {"up", 16, 40, Muon()}};
}

RuntimeOptions World(int nodes, int ranks, Strategy strategy = Strategy::kOwner) {
  RuntimeOptions options = testing::OptionsFor({nodes, ranks}, strategy);
  options.pass_through = PassThrough::kNever;
  return options;
}

// Trains `steps` from the beginning, without a break.
void TrainStraight(const CheckpointModel& model, const RuntimeOptions& options, int steps,
                   Snapshot& end) {
  RunMembers(model, options, 1, [&](CheckpointMember& member, int) {
    absl::Status status = member.Train(steps);
    status.Update(member.AddTo(end));
    return status;
  });
  EXPECT_EQ(end.Wrong(), "");
}

void TrainAndSave(const CheckpointModel& model, const RuntimeOptions& options, int steps,
                  const std::string& folder, Snapshot* saved = nullptr,
                  const SaveOptions& save = {}) {
  RunMembers(model, options, 1, [&](CheckpointMember& member, int) {
    absl::Status status = member.Train(steps);
    status.Update(member->Save(folder, save));
    if (saved != nullptr) status.Update(member.AddTo(*saved));
    return status;
  });
}

// Loads in a world whose own weights are other ones, and trains `steps` more. `loaded`: before
// them.
void LoadAndTrain(const CheckpointModel& model, const RuntimeOptions& options,
                  const std::string& folder, int steps, Snapshot& loaded, Snapshot& end) {
  RunMembers(model, options, 2, [&](CheckpointMember& member, int) {
    absl::Status status = member->Load(folder);
    status.Update(member.AddTo(loaded));
    status.Update(member.Train(steps));
    status.Update(member.AddTo(end));
    return status;
  });
  EXPECT_EQ(loaded.Wrong(), "");
  EXPECT_EQ(end.Wrong(), "");
}

const Way kWays[] = {
    {Strategy::kReplicated, Layout::kReplicated}, {Strategy::kGather, Layout::kSharded},
    {Strategy::kOwner, Layout::kReplicated},      {Strategy::kOwner, Layout::kSharded},
    {Strategy::kNodeLocal, Layout::kReplicated},  {Strategy::kNodeLocal, Layout::kSharded},
    {Strategy::kLayerwise, Layout::kReplicated},  {Strategy::kLayerwise, Layout::kSharded},
    {Strategy::kOwner, Layout::kOwned},           {Strategy::kGather, Layout::kNodeSharded},
    {Strategy::kOwner, Layout::kNodeSharded},     {Strategy::kNodeLocal, Layout::kNodeSharded}};

TEST(Checkpoint, GoesOnBitForBitInAnEqualWorld) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(std::string(Name(way.strategy)) + ", " + std::string(Name(way.layout)));
    const CheckpointModel model = WithLayout(Three(), way.layout);
    const TemporaryFolder folder;
    Snapshot straight, saved, loaded, end;
    // On one node there is no more to node_local than to owner, and no copies of shards.
    const bool of_nodes =
        way.strategy == Strategy::kNodeLocal || way.layout == Layout::kNodeSharded;
    const int nodes = of_nodes ? 2 : 1;
    TrainStraight(model, World(nodes, 2, way.strategy), 3, straight);
    TrainAndSave(model, World(nodes, 2, way.strategy), 2, folder.path(), &saved);
    LoadAndTrain(model, World(nodes, 2, way.strategy), folder.path(), 1, loaded, end);
    EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
    EXPECT_EQ(Snapshot::Difference(straight, end), "");
    EXPECT_NE(Snapshot::Difference(saved, end), "") << "the step changed nothing";
  }
}

TEST(Checkpoint, GoesOnInWorldsOfOneAndThree) {
  for (const Way& way : kWays) {
    const CheckpointModel model = WithLayout(Three(), way.layout);
    const TemporaryFolder folder;
    Snapshot straight, saved;
    TrainStraight(model, World(1, 2, way.strategy), 3, straight);
    TrainAndSave(model, World(1, 2, way.strategy), 2, folder.path(), &saved);
    for (const int world : {1, 3}) {
      SCOPED_TRACE(std::string(Name(way.strategy)) + ", " + std::string(Name(way.layout)) +
                   ", ranks: " + std::to_string(world));
      Snapshot loaded, end;
      LoadAndTrain(model, World(1, world, way.strategy), folder.path(), 1, loaded, end);
      EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
      EXPECT_LE(LargestDifference(straight, end, model), 1e-5);
    }
  }
}

TEST(Checkpoint, AfterTwentyStepsGoesOnWithAnotherGridStrategyAndLayout) {
  CheckpointModel model = Three();
  model.push_back({"wk", 20, 24, Muon()});
  model.push_back({"own", 9, 7, testing::StepwiseRule()});
  for (testing::CheckpointMatrix& matrix : model) matrix.gradient = GradientKind::kLocal;
  const TemporaryFolder folder;
  constexpr int kMore = 10;
  Snapshot straight, saved;
  TrainStraight(model, World(2, 2), 20 + kMore, straight);
  TrainAndSave(model, World(2, 2), 20, folder.path(), &saved);
  struct Other {
    RuntimeOptions options;
    Layout layout;
    bool same;
  };
  const Other others[] = {{World(2, 2), Layout::kReplicated, true},
                          {World(1, 3), Layout::kOwned, false},
                          {World(4, 2, Strategy::kGather), Layout::kSharded, false},
                          {World(3, 2, Strategy::kOwner), Layout::kNodeSharded, false},
                          {World(2, 3, Strategy::kNodeLocal), Layout::kNodeSharded, false}};
  for (const Other& other : others) {
    CheckpointModel there = WithLayout(model, other.layout);
    // Strategy gather has no way for a custom rule on shards.
    if (other.layout == Layout::kSharded) there.back().layout = Layout::kReplicated;
    Snapshot loaded, end;
    LoadAndTrain(there, other.options, folder.path(), kMore, loaded, end);
    EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
    const double difference = LargestDifference(straight, end, model);
    std::printf("%d x %d, %s: weights differ by %.2g\n", other.options.topology.grid.nodes,
                other.options.topology.grid.ranks_per_node,
                std::string(Name(other.options.strategy)).c_str(), difference);
    if (other.same) {
      EXPECT_EQ(Snapshot::Difference(straight, end), "");
    }
    EXPECT_LE(difference, 1e-5);
  }
}

// Padding, fused matrices, rules of the caller with any state, and matrices without elements.
CheckpointModel Odd() {
  CheckpointModel model = Three();
  model[0].row_blocks = {8, 8, 8};
  model[0].padding_rows = 2;
  model[1].padding_rows = 1;
  model.push_back({"own", 5, 6, testing::StepwiseRule(1)});
  model.push_back({"own wide", 3, 4, testing::StepwiseRule(3)});
  model.push_back({"own bare", 3, 4, testing::StepwiseRule(1)});
  std::get<CustomRule>(model.back().rule).state_bytes_per_element = 0;
  std::get<CustomRule>(model.back().rule).enqueue = [](const RuleContext&) {
    return absl::OkStatus();
  };
  model.push_back({"empty", 0, 8, Muon()});
  return model;
}

TEST(Checkpoint, KeysAreAlikeOnAllRanksAndShapesLogical) {
  const CheckpointModel model = Odd();
  for (const bool every_copy : {false, true}) {
    std::mutex mutex;
    std::vector<std::vector<StateTensor>> ranks(3);
    std::set<std::string> descriptions;
    Snapshot memory, exported;
    RunMembers(model, World(1, 3), 1, [&](CheckpointMember& member, int rank) -> absl::Status {
      if (const absl::Status status = member.Train(2); !status.ok()) return status;
      ExportOptions options;
      options.every_copy = every_copy;
      const auto state = member->ExportState(options);
      if (!state.ok()) return state.status();
      for (const StateTensor& tensor : state->tensors) {
        const std::size_t row = tensor.rows == 0 ? 0 : tensor.data.size() / tensor.rows;
        std::size_t whole = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
        whole *= tensor.shape[0] * (tensor.dtype == "F32" ? sizeof(float) : 1);
        exported.Add(tensor.name, whole, tensor.first_row * row, tensor.data.data(),
                     tensor.data.size());
      }
      const std::lock_guard<std::mutex> lock(mutex);
      ranks[rank] = state->tensors;
      descriptions.insert(state->description);
      return member.AddTo(memory);
    });
    EXPECT_EQ(descriptions.size(), 1u);
    EXPECT_EQ(exported.Wrong(), "");
    EXPECT_EQ(Snapshot::Difference(memory, exported), "");
    std::vector<std::string> keys;
    std::int64_t held = 0, all = 0;
    for (std::size_t t = 0; t < ranks[0].size(); ++t) {
      const StateTensor& tensor = ranks[0][t];
      std::string shape;
      for (const std::int64_t extent : tensor.shape) shape += " " + std::to_string(extent);
      keys.push_back(tensor.name + " " + tensor.dtype + shape);
      all += tensor.shape[0];
      for (const std::vector<StateTensor>& rank : ranks) {
        ASSERT_EQ(rank.size(), ranks[0].size());
        EXPECT_EQ(rank[t].name, tensor.name);
        EXPECT_EQ(rank[t].dtype, tensor.dtype);
        EXPECT_EQ(rank[t].shape, tensor.shape);
        held += rank[t].rows;
      }
    }
    EXPECT_THAT(keys, ::testing::ElementsAre("wq.momentum F32 24 16", "wq.weight F32 24 16",
                                             "norm.exp_avg F32 1 40", "norm.exp_avg_sq F32 1 40",
                                             "norm.weight F32 1 40", "up.momentum F32 16 40",
                                             "up.weight F32 16 40", "own.state F32 5 6",
                                             "own.weight F32 5 6", "own wide.state U8 144",
                                             "own wide.weight F32 3 4", "own bare.weight F32 3 4",
                                             "empty.momentum F32 0 8", "empty.weight F32 0 8"));
    if (every_copy) {
      EXPECT_GT(held, all);
    } else {
      EXPECT_EQ(held, all) << "every row once";
    }
  }
}

TEST(Checkpoint, CarriesOddMatricesOntoOtherPaddingAndLayouts) {
  const CheckpointModel model = Odd();
  const TemporaryFolder folder;
  Snapshot straight, saved;
  TrainStraight(model, World(1, 2), 3, straight);
  SaveOptions options;
  options.block_bytes = 100;  // many blocks, none of them whole rows
  TrainAndSave(model, World(1, 2), 2, folder.path(), &saved, options);
  CheckpointModel other = model;
  other[0].padding_rows = 0;
  other[1].padding_rows = 3;
  other[1].layout = Layout::kSharded;
  other[2].layout = Layout::kOwned;
  other[3].layout = Layout::kSharded;
  Snapshot loaded, end;
  LoadAndTrain(other, World(3, 1), folder.path(), 1, loaded, end);
  EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
  EXPECT_LE(LargestDifference(straight, end, model), 1e-5);
}

TEST(Checkpoint, LeavesPaddingOfTheTrainersWeightsAlone) {
  CheckpointModel model = {{"w", 6, 4, Muon()}};
  model[0].padding_rows = 2;
  const TemporaryFolder folder;
  TrainAndSave(model, World(1, 2), 1, folder.path());
  RunMembers(model, World(1, 2), 2, [&](CheckpointMember& member, int) {
    absl::Status status = member->Load(folder.path());
    const std::vector<float> weight = testing::Decode(member.weight(0), DType::kF32);
    EXPECT_EQ(std::vector<float>(weight.end() - 8, weight.end()), std::vector<float>(8, 7.0f));
    return status;
  });
}

// Weft keeps no fp32 copy of a bf16 weight: the owner's weight is the bf16 one, and what it has in
// fp32 is the momentum.
TEST(Checkpoint, OwnersKeepTheirBitsOfBf16WeightsAndFp32Momentum) {
  CheckpointModel model = {{"a", 12, 20, Muon()}, {"b", 20, 12, Muon()}, {"c", 8, 8, Muon()}};
  for (testing::CheckpointMatrix& matrix : model) {
    matrix.dtype = DType::kBF16;
    matrix.layout = Layout::kOwned;
  }
  const TemporaryFolder folder;
  Snapshot saved, straight;
  TrainStraight(model, World(1, 2), 3, straight);
  TrainAndSave(model, World(1, 2), 2, folder.path(), &saved);
  for (const int world : {1, 2, 3}) {
    SCOPED_TRACE(world);
    Snapshot loaded, end;
    LoadAndTrain(model, World(1, world), folder.path(), 1, loaded, end);
    EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
    if (world == 2) {
      EXPECT_EQ(Snapshot::Difference(straight, end), "");
    }
  }
}

TEST(Checkpoint, StepsRatesAndCountsGoOn) {
  const CheckpointModel model = Three();
  const TemporaryFolder folder;
  RunMembers(model, World(1, 2), 1, [&](CheckpointMember& member, int) {
    member.SetRate([](std::int64_t step) { return 0.5 / static_cast<double>(step + 1); });
    absl::Status status = member->SetLossScale(4);
    status.Update(member.Train(4));
    status.Update(member->Save(folder.path()));
    return status;
  });
  Snapshot straight, end;
  RunMembers(model, World(1, 2), 1, [&](CheckpointMember& member, int) {
    member.SetRate([](std::int64_t step) { return 0.5 / static_cast<double>(step + 1); });
    absl::Status status = member->SetLossScale(4);
    status.Update(member.Train(4));
    member.SetRate(nullptr);  // the last one stays
    status.Update(member.Train(1));
    status.Update(member.AddTo(straight));
    return status;
  });
  RuntimeOptions options = World(1, 2);
  options.missing_gradient = MissingGradient::kSkip;
  RunMembers(model, options, 2, [&](CheckpointMember& member, int) {
    absl::Status status = member->Load(folder.path());
    EXPECT_EQ(member->steps(), 4);
    EXPECT_EQ(member->WaitForStep(), absl::OkStatus());
    EXPECT_THAT(member->WithoutGradient(1), ::testing::IsEmpty());
    status.Update(member.Train(1));
    EXPECT_EQ(member->steps(), 5);
    const auto metrics = member->Metrics();
    EXPECT_TRUE(metrics.ok() && metrics->step == 4) << metrics.status();
    EXPECT_THAT(member->WithoutGradient(2), ::testing::IsEmpty());
    status.Update(member.AddTo(end));
    status.Update(member.Submit(0));
    status.Update(member->Step());
    status.Update(member->WaitForStep());
    EXPECT_THAT(member->WithoutGradient(1), ::testing::ElementsAre("norm", "up"));
    return status;
  });
  EXPECT_EQ(Snapshot::Difference(straight, end), "");
  // A rate that is registered anew counts.
  CheckpointModel slower = model;
  for (const std::size_t m : {0, 2}) std::get<MuonOptions>(slower[m].rule).lr = 0;
  RunMembers(slower, World(1, 2), 2, [&](CheckpointMember& member, int) {
    absl::Status status = member->Load(folder.path());
    const std::vector<std::byte> loaded = member.weight(0);
    status.Update(member.Train(1));
    EXPECT_EQ(member.weight(0), loaded);
    return status;
  });
}

TEST(Checkpoint, ImportGoesOnFromWhatAllRanksExported) {
  const CheckpointModel model = Odd();
  std::mutex mutex;
  ExportedState all;
  Snapshot straight, saved;
  TrainStraight(model, World(2, 2), 3, straight);
  RunMembers(model, World(2, 2), 1, [&](CheckpointMember& member, int) -> absl::Status {
    if (const absl::Status status = member.Train(2); !status.ok()) return status;
    auto state = member->ExportState();
    if (!state.ok()) return state.status();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      all.description = state->description;
      for (StateTensor& tensor : state->tensors) all.tensors.push_back(std::move(tensor));
    }
    return member.AddTo(saved);
  });
  CheckpointModel other = model;
  other[0].layout = Layout::kSharded;
  other[2].layout = Layout::kOwned;
  Snapshot loaded, end;
  RunMembers(other, World(1, 3), 2, [&](CheckpointMember& member, int) {
    absl::Status status = member->ImportState(all);
    status.Update(member.AddTo(loaded));
    status.Update(member.Train(1));
    status.Update(member.AddTo(end));
    return status;
  });
  EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
  EXPECT_LE(LargestDifference(straight, end, model), 1e-5);
}

TEST(Checkpoint, RangesWithoutDataTellWhatImportNeeds) {
  const CheckpointModel model = WithLayout(Three(), Layout::kSharded);
  const TemporaryFolder folder;
  Snapshot saved, loaded;
  ExportedState first[2];
  RunMembers(model, World(1, 2), 1, [&](CheckpointMember& member, int rank) -> absl::Status {
    if (const absl::Status status = member.Train(2); !status.ok()) return status;
    ExportOptions copies;
    copies.every_copy = true;
    auto state = member->ExportState(copies);
    if (!state.ok()) return state.status();
    first[rank] = *std::move(state);
    return member.AddTo(saved);
  });
  RunMembers(model, World(1, 2), 2, [&](CheckpointMember& member, int rank) -> absl::Status {
    ExportOptions ranges;
    ranges.every_copy = true;
    ranges.with_data = false;
    const auto needed = member->ExportState(ranges);
    if (!needed.ok()) return needed.status();
    for (std::size_t t = 0; t < needed->tensors.size(); ++t) {
      const StateTensor& tensor = needed->tensors[t];
      EXPECT_TRUE(tensor.data.empty());
      EXPECT_EQ(tensor.first_row, first[rank].tensors[t].first_row) << tensor.name;
      EXPECT_EQ(tensor.rows, first[rank].tensors[t].rows) << tensor.name;
    }
    absl::Status status = member->ImportState(first[rank]);
    status.Update(member.AddTo(loaded));
    return status;
  });
  EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
}

TEST(Checkpoint, CopiesAreWrittenOnceAndByAllWhoHaveThem) {
  const CheckpointModel model = {{"wide", 700, 1501, testing::SteadyAdamW()}};
  const TemporaryFolder folder;
  Snapshot saved, loaded, end;
  TrainAndSave(model, World(1, 3), 1, folder.path(), &saved);
  const double data = 3.0 * 700 * 1501 * sizeof(float);
  double all = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto bytes = static_cast<double>(entry.file_size());
    EXPECT_NEAR(bytes, data / 3, data / 100) << entry.path();
    all += bytes;
  }
  EXPECT_NEAR(all, data, data / 100);
  LoadAndTrain(model, World(2, 1), folder.path(), 0, loaded, end);
  EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
}

// As many ranks have saved as there were, each into a file of its own.
TEST(Checkpoint, FewFilesAreOpenAtATime) {
  const CheckpointModel model = WithLayout(Three(), Layout::kSharded);
  const TemporaryFolder folder;
  Snapshot saved, loaded, end;
  TrainAndSave(model, World(1, 24, Strategy::kGather), 1, folder.path(), &saved);
  const auto count = [](const std::string& path) {
    return std::distance(std::filesystem::directory_iterator(path),
                         std::filesystem::directory_iterator());
  };
  ASSERT_GT(count(folder.path()), 20);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(count("/proc/self/fd")) + 16;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  LoadAndTrain(model, World(1, 1), folder.path(), 0, loaded, end);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
}

TEST(Checkpoint, ASecondSaveTakesThePlaceOfTheFirstAndRemovesNothingElse) {
  const CheckpointModel model = Three();
  const TemporaryFolder parent;
  const std::string folder = parent / "new/er";
  Snapshot saved, loaded, end;
  const std::string others = folder + "/weft-model.safetensors";
  std::size_t files = 0;
  RunMembers(model, World(1, 2), 1, [&](CheckpointMember& member, int rank) {
    absl::Status status = member.Train(1);
    status.Update(member->Save(folder));
    if (rank == 0) {
      files = std::distance(std::filesystem::directory_iterator(folder),
                            std::filesystem::directory_iterator());
      testing::WriteAll(others, "the trainer's");
      testing::WriteAll(folder + "/weft-1-0123456789abcdef-00000.safetensors.12-0.tmp", "left");
    }
    status.Update(member.Train(1));
    status.Update(member->Save(folder));
    status.Update(member.AddTo(saved));
    return status;
  });
  LoadAndTrain(model, World(1, 2), folder, 0, loaded, end);
  EXPECT_EQ(Snapshot::Difference(saved, loaded), "");
  EXPECT_EQ(testing::ReadAll(others), "the trainer's");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder),
                          std::filesystem::directory_iterator()),
            static_cast<std::ptrdiff_t>(files + 1));
}

TEST(Checkpoint, WeightsOfTheTrainersMemoryCanBeLeftToIt) {
  CheckpointModel model = Three();
  model[2].layout = Layout::kOwned;
  const TemporaryFolder folder;
  SaveOptions options;
  options.weights = CarriedWeights::kOwned;
  Snapshot saved;
  TrainAndSave(model, World(1, 2), 2, folder.path(), &saved, options);
  RunMembers(model, World(1, 2), 2, [&](CheckpointMember& member, int) {
    EXPECT_THAT(std::string(member->Load(folder.path()).message()),
                HasSubstr("has no tensor 'wq.weight'"));
    const std::vector<std::byte> before = member.weight(0);
    LoadOptions load;
    load.weights = CarriedWeights::kOwned;
    absl::Status status = member->Load(folder.path(), load);
    EXPECT_EQ(member.weight(0), before);
    status.Update(member->WaitForLayer(2));
    const auto* weight = static_cast<const std::byte*>(*member->Parameter(2));
    const std::vector<std::byte> up = saved.Tensors().at("up.weight");
    EXPECT_TRUE(std::equal(up.begin(), up.end(), weight));
    return status;
  });
}

// Ranks come out of a step at different times, and the next one's weights are on their way on the
// communicators that exchanges use.
TEST(Checkpoint, WeightsOnTheirWayDoNotCrossSavesAndReports) {
  const CheckpointModel model = WithLayout(Three(), Layout::kOwned);
  for (const ProcessGrid& grid : {ProcessGrid{1, 2}, ProcessGrid{2, 2}}) {
    const TemporaryFolder folder;
    RunMembers(model, World(grid.nodes, grid.ranks_per_node), 1,
               [&](CheckpointMember& member, int rank) -> absl::Status {
                 absl::Status status = member->Save(folder.path());
                 for (int step = 0; step < 20 && status.ok(); ++step) {
                   if ((step + rank) % 3 == 0) status.Update(member->Progress());
                   status.Update(member.Train(1));
                   if (step % 2 == 0) status.Update(member->WaitForLayer(0));
                   status.Update(member->MetricsOfAllRanks().status());
                   status.Update(member->Save(folder.path()));
                   status.Update(member->ExportState().status());
                 }
                 return status;
               });
  }
}

// Holds back the first update of a weight.
class HoldingMath final : public testing::ForwardingMath {
 public:
  HoldingMath(Math& inner, absl::Notification& release)
      : ForwardingMath(inner), release_(release) {}

  absl::Status Apply(Stream& stream, std::int64_t count, float decay, float step,
                     const float* direction, void* weight, DType weight_type,
                     const StepControl* control) override {
    if (!held_) {
      stream.Enqueue([this] {
        release_.WaitForNotification();
        return absl::OkStatus();
      });
    }
    held_ = true;
    return inner_.Apply(stream, count, decay, step, direction, weight, weight_type, control);
  }

 private:
  absl::Notification& release_;
  bool held_ = false;
};

class HoldingDevice final : public testing::ForwardingDevice {
 public:
  HoldingDevice(Device& inner, absl::Notification& release)
      : ForwardingDevice(inner), math_(inner.math(), release) {}
  Math& math() override { return math_; }

 private:
  HoldingMath math_;
};

// Step() does not set out the next step's weights on a rank where the step before is not over.
TEST(Checkpoint, WeightsThatOneRankHasNotSentYetDoNotCrossSaves) {
  const CheckpointModel model =
      WithLayout(CheckpointModel{{"a", 8, 8, Muon()}, {"b", 8, 8, Muon()}}, Layout::kOwned);
  const TemporaryFolder folder;
  RuntimeOptions options = World(1, 2);
  options.ownership.owners = {0, 1};
  testing::RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
    absl::Notification release;
    if (rank.rank == 0) release.Notify();
    HoldingDevice device(rank.device, release);
    CheckpointMember member(model, options, {rank.rank, device, rank.transport});
    absl::Status status = member.Commit();
    status.Update(member.Close());
    if (rank.rank == 0) status.Update(member->WaitForStep());
    status.Update(member.Close());
    if (rank.rank == 1) release.Notify();
    status.Update(member->Save(folder.path()));
    status.Update(member->MetricsOfAllRanks().status());
    status.Update(member.Train(1));
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) rank.transport.Abort(status);
  });
}

}  // namespace
}  // namespace weft
