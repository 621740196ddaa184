// Matrices in parts: where the parts are, which are one batch, and that each is orthogonalized by
// itself.
#include "update/parts.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "tests/support/forwarding.h"
#include "tests/update/runs.h"
#include "update/part_runs.h"

namespace weft::update {
namespace {

using Blocks = std::vector<std::int64_t>;

Blocks AnyBlocks() {
  Blocks blocks(*rc::gen::inRange(0, 5));
  // Few sizes, so that some are equal.
  for (std::int64_t& size : blocks) size = *rc::gen::inRange(1, 6);
  return blocks;
}

std::int64_t Sum(const Blocks& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
}

// A matrix that is cut somehow, with rows at its end that belong to no part.
struct Stored {
  Cuts cuts = {AnyBlocks(), *rc::gen::inRange<std::int64_t>(1, 4), AnyBlocks()};
  std::int64_t rows, cols;
  std::int64_t padding = *rc::gen::inRange(0, 3);
  std::vector<Part> parts;

  Stored() {
    if (cuts.row_blocks.empty()) cuts.row_groups = 1;
    rows =
        cuts.row_blocks.empty() ? *rc::gen::inRange(0, 20) : Sum(cuts.row_blocks) * cuts.row_groups;
    cols = cuts.column_blocks.empty() ? *rc::gen::inRange(1, 20) : Sum(cuts.column_blocks);
    parts = PartsOf(rows, cols, cuts);
  }
  std::int64_t size() const { return (rows + padding) * cols; }
};

// The part's elements in the stored matrix, row by row.
std::vector<std::int64_t> PlacesOf(const Part& part, std::int64_t row_stride) {
  std::vector<std::int64_t> places;
  for (std::int64_t b = 0; b < part.blocks; ++b) {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      for (std::int64_t j = 0; j < part.cols; ++j) {
        places.push_back((part.row + b * part.every + i) * row_stride + part.col + j);
      }
    }
  }
  return places;
}

template <typename T>
std::vector<T> Taken(const std::vector<T>& stored, const std::vector<std::int64_t>& places) {
  std::vector<T> taken;
  for (const std::int64_t place : places) taken.push_back(stored[place]);
  return taken;
}

constexpr float kUntouched = -7;

std::vector<float> RunParts(Device& device, const NewtonSchulzOptions& options,
                            const std::vector<Part>& parts, std::int64_t cols,
                            const std::vector<double>& stored) {
  const std::vector<float> update(stored.begin(), stored.end());
  std::vector<float> direction(stored.size(), kUntouched);
  auto runs = *PartRuns::Create(device, options, parts, cols);
  const auto workspace = *device.Allocate(runs->workspace_bytes());
  const auto stream = device.CreateStream("parts");
  // Twice: a run may leave nothing in its workspace that the next one minds.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(runs->Enqueue(*stream, update.data(), direction.data(), workspace->data()),
              absl::OkStatus());
  }
  EXPECT_EQ(stream->Synchronize(absl::InfiniteDuration()), absl::OkStatus());
  return direction;
}

RC_GTEST_PROP(Parts, CoverEachElementOnce, ()) {
  const Stored stored;
  std::vector<int> covered(stored.size(), 0);
  for (const Part& part : stored.parts) {
    for (const std::int64_t place : PlacesOf(part, stored.cols)) ++covered[place];
  }
  const auto padding = covered.begin() + stored.rows * stored.cols;
  RC_ASSERT(std::all_of(covered.begin(), padding, [](int times) { return times == 1; }));
  RC_ASSERT(std::all_of(padding, covered.end(), [](int times) { return times == 0; }));
}

// With q, k, v in every group: all of Q, then all of K, then all of V.
TEST(Parts, BlockIOfAllGroupsIsOnePart) {
  const std::vector<Part> parts = PartsOf(16, 8, {{4, 2, 2}, 2, {}});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0], (Part{0, 4, 0, 8, 2, 8}));
  EXPECT_EQ(parts[1], (Part{4, 2, 0, 8, 2, 8}));
  EXPECT_EQ(parts[2], (Part{6, 2, 0, 8, 2, 8}));
  EXPECT_EQ(parts[0].height(), 8);
  // One block per group is all rows.
  EXPECT_EQ(PartsOf(16, 8, {{8}, 2, {}}), (std::vector<Part>{{0, 16, 0, 8}}));
}

RC_GTEST_PROP(Parts, BatchesHaveEachPartOnce, ()) {
  const Stored stored;
  const auto key = [&](const Part& part, std::int64_t shift) {
    return std::tuple(part.row * stored.cols + part.col + shift, part.rows, part.cols, part.blocks);
  };
  std::vector<decltype(key(Part{}, 0))> expected, found;
  for (const Part& part : stored.parts) expected.push_back(key(part, 0));
  for (const EqualParts& equal : BatchesOf(stored.parts, stored.cols)) {
    for (std::int64_t i = 0; i < equal.count; ++i) {
      found.push_back(key(equal.first, i * equal.distance));
    }
  }
  std::sort(expected.begin(), expected.end());
  std::sort(found.begin(), found.end());
  RC_ASSERT(found == expected);
}

TEST(Parts, EqualBlocksAlongOneSideAreOneBatch) {
  const auto sizes = [](std::int64_t rows, std::int64_t cols, const Cuts& cuts) {
    std::vector<std::int64_t> counts;
    for (const EqualParts& equal : BatchesOf(PartsOf(rows, cols, cuts), cols)) {
      counts.push_back(equal.count);
    }
    return counts;
  };
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(sizes(48, 5, {EqualBlocks(16, 3), 1, {}}), Counts{16});
  EXPECT_EQ(sizes(5, 48, {{}, 1, EqualBlocks(16, 3)}), Counts{16});
  EXPECT_EQ(sizes(48, 5, {{16, 8, 8, 16}, 1, {}}), (Counts{2, 2}));
  EXPECT_EQ(sizes(8, 5, {{4, 2, 2}, 1, {}}), (Counts{1, 2}));
  EXPECT_EQ(sizes(16, 5, {{4, 2, 2}, 2, {}}), (Counts{1, 2}));
  EXPECT_EQ(sizes(18, 5, {{2, 2, 2}, 3, {}}), Counts{3});
  EXPECT_EQ(sizes(6, 4, {{}, 1, {}}), Counts{1});
  // Equal ones with unequal distances.
  EXPECT_EQ(sizes(10, 5, {{2, 1, 2, 3, 2}, 1, {}}), (Counts{2, 1, 1, 1}));
}

TEST(Parts, EqualBlocksOfNothingAreAListThatIsRefused) {
  EXPECT_EQ(EqualBlocks(3, 4), (Blocks{4, 4, 4}));
  EXPECT_EQ(EqualBlocks(0, 4), Blocks{0});
  EXPECT_EQ(EqualBlocks(-1, 4), Blocks{0});
  EXPECT_EQ(EqualBlocks(2, -4), (Blocks{-4, -4}));
}

class PartRunsTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = *CreateHostDevice();
};

NewtonSchulzOptions AnyOptions(DType type) {
  return testing::Options(*rc::gen::elementOf(testing::AllCoefficients()), type,
                          *rc::gen::elementOf(std::vector<std::vector<int>>{{}, {0}, {1, 2, 2}}));
}

// Against serial float64 of each part alone; what belongs to none stays as it was.
RC_GTEST_FIXTURE_PROP(PartRunsTest, EachPartIsOrthogonalizedByItself, ()) {
  const Stored stored;
  const NewtonSchulzOptions options = AnyOptions(DType::kF32);
  std::vector<double> update = testing::Gaussian(stored.size(), *rc::gen::arbitrary<unsigned>());
  // Parts of very different sizes: a norm of more than one part would show.
  double scale = 1;
  for (const Part& part : stored.parts) {
    for (const std::int64_t place : PlacesOf(part, stored.cols)) {
      update[place] = static_cast<float>(update[place] * scale);
    }
    scale *= 100;
    if (scale > 1e9) scale = 0;
  }
  const std::vector<float> direction =
      RunParts(*device_, options, stored.parts, stored.cols, update);
  for (const Part& part : stored.parts) {
    const auto places = PlacesOf(part, stored.cols);
    const std::vector<double> expected =
        testing::ReferenceNewtonSchulz(options, Taken(update, places), part.height(), part.cols);
    RC_ASSERT(testing::RelativeError(Taken(direction, places), expected) < 5e-5);
  }
  RC_ASSERT(std::all_of(direction.begin() + stored.rows * stored.cols, direction.end(),
                        [](float value) { return value == kUntouched; }));
}

// Parts of 16 rows and more, where rounding averages out (docs/update-rules.md).
TEST_F(PartRunsTest, EachPartInSixteenBits) {
  const std::vector<std::tuple<std::int64_t, std::int64_t, Cuts>> cases = {
      {112, 48, {{64, 24, 24}, 1, {}}}, {48, 96, {{}, 1, EqualBlocks(3, 32)}},
      {48, 112, {{}, 1, {64, 24, 24}}}, {96, 40, {EqualBlocks(4, 24), 1, {}}},
      {96, 40, {{24, 12, 12}, 2, {}}},  {48, 64, {{24, 24}, 1, {32, 32}}}};
  for (const auto& [type, bound] : {std::pair{DType::kF16, 4e-3}, {DType::kBF16, 3e-2}}) {
    for (const auto& [rows, cols, cuts] : cases) {
      const NewtonSchulzOptions options = testing::Options(Coefficients::Quintic(), type, {});
      const std::vector<double> update = testing::Gaussian(rows * cols, 3);
      const std::vector<Part> parts = PartsOf(rows, cols, cuts);
      const std::vector<float> direction = RunParts(*device_, options, parts, cols, update);
      for (const Part& part : parts) {
        const auto places = PlacesOf(part, cols);
        EXPECT_LT(
            testing::RelativeError(Taken(direction, places),
                                   testing::ReferenceNewtonSchulz(options, Taken(update, places),
                                                                  part.height(), part.cols)),
            bound)
            << Name(type) << " " << part.height() << " x " << part.cols;
      }
    }
  }
}

RC_GTEST_FIXTURE_PROP(PartRunsTest, OnePartHasTheBitsOfNoParts, ()) {
  const std::int64_t rows = *rc::gen::inRange(1, 40), cols = *rc::gen::inRange(1, 40);
  const NewtonSchulzOptions options = AnyOptions(*rc::gen::elementOf(kDTypes));
  const std::vector<double> update = testing::Gaussian(rows * cols, 5);
  const std::vector<float> whole = testing::Orthogonalize(*device_, options, update, rows, cols);
  for (const Cuts& cuts :
       {Cuts{}, Cuts{{rows}, 1, {}}, Cuts{{}, 1, {cols}}, Cuts{{rows}, 1, {cols}}}) {
    RC_ASSERT(RunParts(*device_, options, PartsOf(rows, cols, cuts), cols, update) == whole);
  }
}

// Where the parts lie changes nothing: the bits of the same batches of dense matrices.
RC_GTEST_FIXTURE_PROP(PartRunsTest, HaveTheBitsOfTheSameBatchesApart, ()) {
  const Stored stored;
  const NewtonSchulzOptions options = AnyOptions(*rc::gen::elementOf(kDTypes));
  const std::vector<double> update = testing::Gaussian(stored.size(), 6);
  const std::vector<float> direction =
      RunParts(*device_, options, stored.parts, stored.cols, update);
  for (const EqualParts& equal : BatchesOf(stored.parts, stored.cols)) {
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < equal.count; ++i) {
      for (const std::int64_t place : PlacesOf(equal.first, stored.cols)) {
        places.push_back(place + i * equal.distance);
      }
    }
    RC_ASSERT(Taken(direction, places) ==
              testing::Orthogonalize(*device_, options, Taken(update, places), equal.first.height(),
                                     equal.first.cols, equal.count));
  }
}

RC_GTEST_FIXTURE_PROP(PartRunsTest, AZeroPartGetsAZeroDirectionAndTheOthersDoNot, ()) {
  const Stored stored;
  RC_PRE(stored.rows > 0);
  std::vector<double> update = testing::Gaussian(stored.size(), 7);
  const auto zero = *rc::gen::inRange<std::size_t>(0, stored.parts.size());
  for (const std::int64_t place : PlacesOf(stored.parts[zero], stored.cols)) update[place] = 0;
  const std::vector<float> direction =
      RunParts(*device_, AnyOptions(DType::kF32), stored.parts, stored.cols, update);
  for (std::size_t i = 0; i < stored.parts.size(); ++i) {
    const std::vector<float> part = Taken(direction, PlacesOf(stored.parts[i], stored.cols));
    const bool zeros = std::all_of(part.begin(), part.end(), [](float x) { return x == 0; });
    RC_ASSERT(zeros == (i == zero));
  }
}

class BatchCountingMath final : public testing::ForwardingMath {
 public:
  using ForwardingMath::ForwardingMath;
  absl::Status MatMul(Stream& stream, const Product& product) override {
    batches.push_back(product.d.batch);
    return inner_.MatMul(stream, product);
  }
  std::vector<std::int64_t> batches;
};

class BatchCountingDevice final : public testing::ForwardingDevice {
 public:
  explicit BatchCountingDevice(Device& inner) : ForwardingDevice(inner), counts(inner.math()) {}
  Math& math() override { return counts; }
  BatchCountingMath counts;
};

// Equal parts are batched products, as many as those of one part.
TEST_F(PartRunsTest, EqualPartsTakeTheProductsOfOne) {
  const NewtonSchulzOptions options = testing::Options(Coefficients::Quintic(), DType::kF32, {0});
  for (const Cuts& cuts : {Cuts{EqualBlocks(8, 6), 1, {}}, Cuts{{}, 1, EqualBlocks(8, 6)},
                           Cuts{EqualBlocks(8, 3), 2, {}}}) {
    BatchCountingDevice counting(*device_);
    Device& device = counting;
    auto runs = *PartRuns::Create(device, options, PartsOf(48, 48, cuts), 48);
    const auto workspace = *device.Allocate(runs->workspace_bytes());
    const std::vector<float> update(48 * 48, 1.0f);
    std::vector<float> direction(48 * 48);
    const auto stream = device.CreateStream("parts");
    ASSERT_TRUE(runs->Enqueue(*stream, update.data(), direction.data(), workspace->data()).ok());
    ASSERT_TRUE(stream->Synchronize(absl::InfiniteDuration()).ok());
    EXPECT_EQ(counting.counts.batches, std::vector<std::int64_t>(15, 8));
  }
}

TEST_F(PartRunsTest, AMatrixWithoutElementsMayBeNull) {
  BatchCountingDevice counting(*device_);
  Device& device = counting;
  const NewtonSchulzOptions options = testing::Options(Coefficients::Quintic(), DType::kF32, {0});
  auto runs = *PartRuns::Create(device, options, PartsOf(0, 6, {{}, 1, {4, 2}}), 6);
  const auto stream = device.CreateStream("parts");
  EXPECT_EQ(runs->workspace_bytes(), 0u);
  ASSERT_EQ(runs->Enqueue(*stream, nullptr, nullptr, nullptr), absl::OkStatus());
  ASSERT_TRUE(stream->Synchronize(absl::InfiniteDuration()).ok());
  EXPECT_TRUE(counting.counts.batches.empty());
}

// What the header promises: seven matrices of the stored size, each rounded up to 64 bytes.
RC_GTEST_FIXTURE_PROP(PartRunsTest, NeedNoMoreRoomThanASquareMatrix, ()) {
  const Stored stored;
  const DType type = *rc::gen::elementOf(kDTypes);
  const auto runs = *PartRuns::Create(*device_, testing::Options(Coefficients::You(), type, {}),
                                      stored.parts, stored.cols);
  const auto elements = static_cast<std::size_t>(stored.rows * stored.cols);
  const std::size_t packed =
      stored.cuts.row_groups > 1 ? (elements * sizeof(float) + 63) / 64 * 64 : 0;
  RC_ASSERT(runs->workspace_bytes() <= 7 * (elements * SizeOf(type) + 63) + packed);
}

}  // namespace
}  // namespace weft::update
