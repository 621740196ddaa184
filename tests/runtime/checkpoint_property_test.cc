// Any model, saved on any grid, strategy and layout, is on any other what it was, bit for bit.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/runtime/checkpoint_world.h"
#include "tests/scheduler/requests.h"
#include "tests/support/property.h"
#include "tests/support/temporary_folder.h"

namespace weft {
namespace {

using testing::CheckpointMatrix;
using testing::CheckpointMember;
using testing::CheckpointModel;
using testing::Evenly;
using testing::RunMembers;
using testing::Snapshot;

constexpr int kCases = testing::kSanitized || testing::kUnderFakes ? 15 : 100;

// What is the same wherever the model is trained.
CheckpointModel DrawModel() {
  CheckpointModel model;
  const int count = *Evenly(1, 7);
  for (int m = 0; m < count; ++m) {
    CheckpointMatrix matrix;
    matrix.name = "m" + std::to_string(m);
    matrix.rows = *Evenly(0, 40);
    matrix.cols = *Evenly(0, 40);
    matrix.dtype = *rc::gen::element(DType::kF32, DType::kBF16);
    switch (*Evenly(0, 3)) {
      case 0:
        matrix.rule = testing::SteadyAdamW();
        break;
      case 1:
        matrix.rule = testing::StepwiseRule(*Evenly(1, 4));
        matrix.dtype = DType::kF32;  // all that the rule can do
        break;
      default:
        break;
    }
    model.push_back(std::move(matrix));
  }
  return model;
}

RuleKind KindOf(const Rule& rule) {
  if (std::holds_alternative<MuonOptions>(rule)) return RuleKind::kMuon;
  return std::holds_alternative<AdamWOptions>(rule) ? RuleKind::kElementwise : RuleKind::kCustom;
}

// Rows of each rank, any that add up.
std::vector<std::int64_t> DrawShards(std::int64_t rows, int world) {
  std::vector<std::int64_t> cuts = {0, rows};
  for (int i = 1; i < world; ++i) cuts.push_back(*Evenly<std::int64_t>(0, rows + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::int64_t> shards;
  for (std::size_t i = 1; i < cuts.size(); ++i) shards.push_back(cuts[i] - cuts[i - 1]);
  return shards;
}

struct Place {
  RuntimeOptions options;
  CheckpointModel model;
};

// One way of training it.
Place DrawPlace(CheckpointModel model) {
  const auto strategy =
      *rc::gen::element(Strategy::kReplicated, Strategy::kGather, Strategy::kOwner,
                        Strategy::kNodeLocal, Strategy::kLayerwise);
  Place place{testing::OptionsFor(testing::DrawGrid(6), strategy), std::move(model)};
  place.options.pass_through = *rc::gen::element(PassThrough::kNever, PassThrough::kAlways);
  place.options.limits.bucket_bytes = *rc::gen::element<std::int64_t>(0, 2000, 1 << 20);
  for (CheckpointMatrix& matrix : place.model) {
    const RuleKind kind = KindOf(matrix.rule);
    if (kind != RuleKind::kCustom && *Evenly(0, 3) == 0) matrix.padding_rows = *Evenly(1, 5);
    matrix.layout = *rc::gen::elementOf(testing::LayoutsFor(
        strategy, kind,
        {Layout::kReplicated, Layout::kSharded, Layout::kOwned, Layout::kNodeSharded}));
    matrix.gradient = testing::DrawGradient(matrix.layout);
    if (testing::InShards(matrix.layout) && *rc::gen::arbitrary<bool>()) {
      matrix.shard_rows = DrawShards(matrix.rows + matrix.padding_rows,
                                     testing::Shards(matrix.layout, place.options.topology.grid));
    }
  }
  return place;
}

TEST(CheckpointProperty, WhatIsSavedAnywhereIsLoadedAnywhereBitForBit) {
  testing::HoldsInCases(kCases, [] {
    const CheckpointModel model = DrawModel();
    const Place from = DrawPlace(model), to = DrawPlace(model);
    SaveOptions options;
    options.block_bytes = *rc::gen::element<std::int64_t>(*Evenly(1, 300), 4 << 20);
    const int steps = *Evenly(0, 3);
    const testing::TemporaryFolder folder;
    Snapshot saved, loaded;
    RunMembers(from.model, from.options, 1, [&](CheckpointMember& member, int) {
      absl::Status status = member.Train(steps);
      status.Update(member->Save(folder.path(), options));
      status.Update(member.AddTo(saved));
      return status;
    });
    RunMembers(to.model, to.options, 2, [&](CheckpointMember& member, int) {
      absl::Status status = member->Load(folder.path());
      EXPECT_EQ(member->steps(), steps);
      status.Update(member.AddTo(loaded));
      status.Update(member.Train(1));
      return status;
    });
    RC_ASSERT(saved.Wrong() == "");
    RC_ASSERT(loaded.Wrong() == "");
    RC_ASSERT(Snapshot::Difference(saved, loaded) == "");
    RC_ASSERT(!::testing::Test::HasFailure());
  });
}

}  // namespace
}  // namespace weft
