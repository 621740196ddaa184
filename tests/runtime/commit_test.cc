// Registration and Commit(): what is refused, and how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/support/forwarding.h"
#include "tests/support/model.h"
#include "tests/support/topologies.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RunWorld;

class OneRank : public ::testing::Test {
 protected:
  OneRank() {
    device_ = *CreateHostDevice();
    transports_ = *CreateLocalTransports({});
    runtime_ = *Runtime::Create(testing::OptionsFor({1, 1}), *device_, *transports_[0]);
  }

  MatrixSpec Spec(const std::string& name = "w") {
    MatrixSpec spec;
    spec.name = name;
    spec.rows = 4;
    spec.cols = 3;
    spec.weight = weight_.data();
    return spec;
  }
  std::string Refusal(const MatrixSpec& spec) {
    const auto id = runtime_->AddMatrix(spec);
    EXPECT_EQ(id.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(id.status().message());
  }

  std::vector<float> weight_ = std::vector<float>(12, 1.0f);
  std::vector<float> gradient_ = std::vector<float>(12, 0.5f);
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(OneRank, RefusesBadSpecsNamingTheMatrix) {
  MatrixSpec spec = Spec();
  spec.name = "";
  EXPECT_THAT(Refusal(spec), HasSubstr("name"));
  spec = Spec("neg");
  spec.name = "caf\xe9";
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("not UTF-8"), HasSubstr(R"('caf\xe9')")));
  spec = Spec("neg");
  spec.rows = -1;
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'neg'"), HasSubstr("-1 x 3")));
  spec = Spec("huge");
  spec.rows = spec.cols = std::int64_t{1} << 40;
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'huge'"), HasSubstr("too large")));
  // A plan holds matrices against the same limits.
  spec.rows = (std::int64_t{1} << 40) + 1;
  spec.cols = 1;
  EXPECT_THAT(Refusal(spec), HasSubstr("too large"));
  spec.rows = std::numeric_limits<std::int64_t>::max();
  spec.cols = 0;
  EXPECT_THAT(Refusal(spec), HasSubstr("too large"));
  spec = Spec("enum");
  spec.dtype = DType(9);
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'enum'"), HasSubstr("names nothing")));
  spec = Spec("enum");
  spec.layout = Layout(9);
  EXPECT_THAT(Refusal(spec), HasSubstr("names nothing"));
  spec = Spec("enum");
  spec.gradient = GradientKind(9);
  EXPECT_THAT(Refusal(spec), HasSubstr("names nothing"));
  spec = Spec("null");
  spec.weight = nullptr;
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'null'"), HasSubstr("null")));
  spec = Spec("shards");
  spec.layout = Layout::kSharded;
  spec.shard_rows = {3};
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'shards'"), HasSubstr("add up to 3")));
  spec.shard_rows = {2, 2};
  EXPECT_THAT(Refusal(spec), HasSubstr("2 entries for 1 ranks"));
  spec = Spec("iterations");
  MuonOptions muon;
  muon.newton_schulz.iterations = 0;
  spec.rule = muon;
  EXPECT_THAT(Refusal(spec), HasSubstr("'iterations'"));
  spec = Spec("costly");
  CustomRule custom;
  custom.enqueue = [](const RuleContext&) { return absl::OkStatus(); };
  custom.flops = NAN;
  spec.rule = custom;
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'costly'"), HasSubstr("not finite")));
  custom.flops = 0;
  custom.state_bytes_per_element = 1025;
  spec.rule = custom;
  EXPECT_THAT(Refusal(spec), HasSubstr("1025 bytes per element"));
  spec = Spec("norule");
  spec.rule = CustomRule{};
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'norule'"), HasSubstr("no function")));
}

TEST_F(OneRank, WarnsInThePlanOfSegmentsThatAreUnsafe) {
  MuonOptions muon;
  muon.newton_schulz.coefficients = Coefficients::PolarExpress();
  muon.newton_schulz.operand_type = DType::kBF16;
  MatrixSpec chosen = Spec("chosen");
  chosen.rule = muon;
  muon.newton_schulz.segments = {2, 2, 1};
  MatrixSpec asked = Spec("asked");
  asked.rule = muon;
  MatrixSpec other = Spec("other");
  other.rule = AdamWOptions{};
  std::array<std::vector<float>, 3> weights;
  weights.fill(weight_);
  chosen.weight = weights[0].data();
  asked.weight = weights[1].data();
  other.weight = weights[2].data();
  for (const MatrixSpec& spec : {chosen, asked, other}) {
    ASSERT_TRUE(runtime_->AddMatrix(spec).ok());
  }
  ASSERT_TRUE(runtime_->Commit().ok()) << "a warning is no refusal";
  std::map<std::string, std::vector<std::string>> warnings;
  for (const PlanMatrix& matrix : runtime_->plan().matrices) {
    warnings[matrix.name] = matrix.warnings;
  }
  EXPECT_THAT(warnings["asked"], ElementsAre(AllOf(HasSubstr("[2,2,1]"), HasSubstr("[1,2,2]"))));
  EXPECT_THAT(warnings["chosen"], IsEmpty());
  EXPECT_THAT(warnings["other"], IsEmpty());
}

TEST_F(OneRank, RefusesADuplicateName) {
  ASSERT_TRUE(runtime_->AddMatrix(Spec()).ok());
  EXPECT_THAT(Refusal(Spec()), AllOf(HasSubstr("'w'"), HasSubstr("twice")));
}

TEST_F(OneRank, RefusesAWeightInAnothersMemory) {
  ASSERT_TRUE(runtime_->AddMatrix(Spec("first")).ok());
  MatrixSpec spec = Spec("second");
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'second'"), HasSubstr("'first'")));
  spec.weight = weight_.data() + 11;
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr("'second'"), HasSubstr("'first'")));
  // Neighbours do not overlap, and what is empty overlaps nothing. A refused name stays free.
  std::vector<float> three(36);
  for (const int place : {0, 2, 1}) {
    spec = Spec("third " + std::to_string(place));
    spec.weight = three.data() + 12 * place;
    EXPECT_TRUE(runtime_->AddMatrix(spec).ok());
  }
  spec = Spec("second");
  spec.rows = 0;
  EXPECT_TRUE(runtime_->AddMatrix(spec).ok());
}

TEST_F(OneRank, HasAnOrderOfCalls) {
  EXPECT_EQ(runtime_->Commit().code(), absl::StatusCode::kFailedPrecondition) << "no matrices";
  EXPECT_EQ(runtime_->Step().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(runtime_->AddMatrix(Spec()).ok());
  EXPECT_EQ(runtime_->Submit({.matrix = 0, .gradient = gradient_.data()}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(runtime_->Commit().ok());
  EXPECT_EQ(runtime_->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime_->AddMatrix(Spec("late")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime_->Metrics().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime_->WriteTrace("/nowhere/t.json").code(), absl::StatusCode::kFailedPrecondition)
      << "tracing is off";
}

TEST_F(OneRank, RefusesBadJobsAndGoesOn) {
  ASSERT_TRUE(runtime_->AddMatrix(Spec()).ok());
  ASSERT_TRUE(runtime_->Commit().ok());
  EXPECT_EQ(runtime_->Submit({.matrix = 7, .gradient = gradient_.data()}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(runtime_->Submit({.matrix = -1, .gradient = gradient_.data()}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(runtime_->Submit({.matrix = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(runtime_->Submit({.matrix = 0, .gradient = gradient_.data()}).ok());
  const auto second = runtime_->Submit({.matrix = 0, .gradient = gradient_.data()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("'w'"));
  EXPECT_EQ(runtime_->WaitForLayer(9).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(runtime_->Step().ok());
  EXPECT_TRUE(runtime_->WaitForLayer(0).ok());
  EXPECT_NE(weight_[0], 1.0f);
}

TEST_F(OneRank, RefusesBadOptions) {
  RuntimeOptions options = testing::OptionsFor({2, 2});
  EXPECT_THAT(std::string(Runtime::Create(options, *device_, *transports_[0]).status().message()),
              HasSubstr("2 x 2"));
  options = testing::OptionsFor({1, 1});
  options.deadline = absl::ZeroDuration();
  EXPECT_FALSE(Runtime::Create(options, *device_, *transports_[0]).ok());
  options = testing::OptionsFor({1, 1});
  options.decision_ring = 0;
  EXPECT_FALSE(Runtime::Create(options, *device_, *transports_[0]).ok());
  options = testing::OptionsFor({1, 1});
  options.strategy = Strategy(7);
  EXPECT_FALSE(Runtime::Create(options, *device_, *transports_[0]).ok());
  options = testing::OptionsFor({1, 1});
  for (const int value : {-1, 0, 1, 2, 3}) {
    const bool known = value >= 0 && value <= 2;
    options.missing_gradient = MissingGradient(value);
    EXPECT_EQ(Runtime::Create(options, *device_, *transports_[0]).ok(), known);
    options.missing_gradient = MissingGradient::kError;
    options.non_finite = NonFinite(value);
    EXPECT_EQ(Runtime::Create(options, *device_, *transports_[0]).ok(), known);
    options.non_finite = NonFinite::kError;
  }
  options.limits.passes = 1001;
  EXPECT_THAT(std::string(Runtime::Create(options, *device_, *transports_[0]).status().message()),
              HasSubstr("passes is 1001"));
}

TEST(PlanForChecks, WhatCouldOverflowOrNamesNothing) {
  MatrixSpec spec;
  spec.name = "w";
  spec.rows = spec.cols = 4;
  const auto refused = [&](const MatrixSpec& matrix, const RuntimeOptions& options) {
    const absl::Status status = PlanFor({matrix}, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  RuntimeOptions options = testing::OptionsFor({1, 3});
  EXPECT_TRUE(PlanFor({spec}, options).ok());
  options.strategy = Strategy(7);
  EXPECT_THAT(refused(spec, options), HasSubstr("strategy"));
  options = testing::OptionsFor({1, 3});
  options.topology.grid = {65536, 65537};
  EXPECT_THAT(refused(spec, options), HasSubstr("65536 nodes of 65537 ranks"));
  options = testing::OptionsFor({1, 3});
  MatrixSpec shards = spec;
  shards.layout = Layout::kSharded;
  // These add up to 4 in 64 bits.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  shards.shard_rows = {kMost, kMost, 6};
  EXPECT_THAT(refused(shards, options), AllOf(HasSubstr("'w'"), HasSubstr("shard_rows")));
  spec.dtype = DType(9);
  EXPECT_THAT(refused(spec, options), HasSubstr("'w'"));
}

// Commits on every rank with specs that `change` makes different; each rank's message.
template <typename Change>
std::array<std::string, 2> CommitDifferent(Change change) {
  std::array<std::string, 2> messages;
  RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
    std::vector<float> weight(64 + 400 * 2560, 0.0f);
    auto runtime = *Runtime::Create(testing::OptionsFor({1, 2}), rank.device, rank.transport);
    MatrixSpec a{.name = "a", .rows = 8, .cols = 8, .weight = weight.data()};
    MatrixSpec b{.name = "b", .rows = 100, .cols = 2560, .weight = weight.data() + 64};
    std::vector<MatrixSpec> specs = {a, b};
    if (rank.rank == 1) change(specs);
    for (const MatrixSpec& spec : specs) ASSERT_TRUE(runtime->AddMatrix(spec).ok());
    const absl::Status status = runtime->Commit();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    messages[rank.rank] = std::string(status.message());
  });
  EXPECT_EQ(messages[0], messages[1]);
  return messages;
}

// Case 22.
TEST(CommitCompares, SizesThatDifferAreRefusedWithBothNamed) {
  const auto messages = CommitDifferent([](auto& specs) { specs[1].rows = 200; });
  EXPECT_EQ(messages[0],
            "ranks registered different things: matrix 'b': rank 0 has rows 100, rank 1 has 200");
}

// One field with both values, not two descriptions to compare by eye.
TEST(CommitCompares, NamesTheFirstFieldThatDiffers) {
  const auto difference = [](const auto& change) {
    const std::string prefix = "ranks registered different things: ";
    const std::string message = CommitDifferent(change)[0];
    EXPECT_EQ(message.rfind(prefix, 0), 0u) << message;
    return message.substr(prefix.size());
  };
  const auto rule = [&](const Rule& other) {
    return difference([&](auto& specs) { specs[1].rule = other; });
  };
  EXPECT_EQ(difference([](auto& specs) { specs[0].name = "c"; }),
            "at place 0 rank 0 has matrix 'a', rank 1 has matrix 'c'");
  EXPECT_EQ(difference([](auto& specs) { std::swap(specs[0], specs[1]); }),
            "at place 0 rank 0 has matrix 'a', rank 1 has matrix 'b'");
  EXPECT_EQ(difference([](auto& specs) { specs.pop_back(); }),
            "at place 1 rank 0 has matrix 'b', rank 1 has nothing");
  EXPECT_EQ(difference([](auto& specs) { specs[1].dtype = DType::kBF16; }),
            "matrix 'b': rank 0 has dtype f32, rank 1 has bf16");
  EXPECT_EQ(rule(AdamWOptions{}), "matrix 'b': rank 0 has rule Muon, rank 1 has AdamW");
  EXPECT_EQ(rule(MuonOptions{.lr = 0.5}), "matrix 'b': rank 0 has lr 0.02, rank 1 has 0.5");
  EXPECT_EQ(rule(MuonOptions{.nesterov = false}),
            "matrix 'b': rank 0 has nesterov true, rank 1 has false");
  // The last bit counts: weights would drift apart.
  EXPECT_EQ(rule(MuonOptions{.lr = std::nextafter(0.02, 1)}),
            "matrix 'b': rank 0 has lr 0.02, rank 1 has 0.020000000000000004");
  MuonOptions muon;
  muon.newton_schulz.coefficients.triples = {{3.4445, -4.775, 2.0316}};
  EXPECT_EQ(rule(muon),
            "matrix 'b': rank 0 has coefficients [(3.4445 -4.775 2.0315)], rank 1 has [(3.4445 "
            "-4.775 2.0316)]");
  muon.newton_schulz.coefficients = Coefficients::You();
  muon.newton_schulz.coefficients.triples[2].a = 3;
  EXPECT_THAT(rule(muon), HasSubstr("matrix 'b': rank 0 has coefficients [("));
}

TEST(CommitCompares, EveryFieldOfTheTopology) {
  const Topology mine{.grid = {1, 2}};
  for (const auto& [field, other] : testing::OneFieldChanged(mine)) {
    if (other.grid != mine.grid) continue;  // each rank's Create() holds it against its transport
    std::array<std::string, 2> messages;
    RunWorld({.grid = {1, 2}}, [&, other = other](testing::Rank rank) {
      std::vector<float> weight(64, 0.0f);
      RuntimeOptions options = testing::OptionsFor({1, 2});
      if (rank.rank == 1) options.topology = other;
      auto runtime = *Runtime::Create(options, rank.device, rank.transport);
      ASSERT_TRUE(
          runtime->AddMatrix({.name = "w", .rows = 8, .cols = 8, .weight = weight.data()}).ok());
      const absl::Status status = runtime->Commit();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      messages[rank.rank] = std::string(status.message());
    });
    EXPECT_THAT(messages[0], HasSubstr("options: rank 0 has " + field + " ")) << field;
    EXPECT_EQ(messages[1], messages[0]);
  }
}

// Of two lists as long as each other, the first item that differs.
TEST(CommitCompares, NamesTheFirstItemThatDiffers) {
  std::array<std::string, 2> messages;
  RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
    std::vector<float> weight(64, 0.0f);
    auto runtime = *Runtime::Create(testing::OptionsFor({1, 2}), rank.device, rank.transport);
    MatrixSpec spec{.name = "w", .rows = 8, .cols = 8, .weight = weight.data()};
    spec.layout = Layout::kSharded;
    spec.shard_rows =
        rank.rank == 0 ? std::vector<std::int64_t>{8, 0} : std::vector<std::int64_t>{7, 1};
    ASSERT_TRUE(runtime->AddMatrix(spec).ok());
    messages[rank.rank] = std::string(runtime->Commit().message());
  });
  EXPECT_EQ(messages[0],
            "ranks registered different things: matrix 'w': rank 0 has shard_rows[0] 8, rank 1 "
            "has 7");
  EXPECT_EQ(messages[1], messages[0]);
}

// A device that has no memory left once it is told so.
class FullDevice final : public testing::ForwardingDevice {
 public:
  FullDevice(Device& device, const bool& full) : ForwardingDevice(device), full_(full) {}
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override {
    if (full_) return absl::ResourceExhaustedError("no memory left");
    return inner_.Allocate(bytes);
  }

 private:
  const bool& full_;
};

TEST(CommitOnRanks, WhatFailsOnOneFailsOnAllAndIsFinal) {
  RunWorld({.grid = {1, 3}}, [&](testing::Rank rank) {
    bool full = rank.rank == 1;
    FullDevice device(rank.device, full);
    testing::RankModel model({{4, 6}, {5, 5}}, Layout::kReplicated, GradientKind::kLocal, rank.rank,
                             3, 5);
    auto runtime = *Runtime::Create(testing::OptionsFor({1, 3}), device, rank.transport);
    for (int m = 0; m < 2; ++m) ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{})).ok());
    const absl::Status failed = runtime->Commit();
    EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(failed.message()),
                AllOf(HasSubstr("rank 1"), HasSubstr("'m0'"), HasSubstr("no memory left")));
    // A second try would find its peers elsewhere.
    EXPECT_EQ(runtime->Commit(), failed);
    EXPECT_EQ(runtime->AddMatrix(model.Spec(0, MuonOptions{})).status(), failed);
    EXPECT_EQ(runtime->Step(), failed);
    // The transport is as good as before.
    full = false;
    RuntimeOptions options = testing::OptionsFor({1, 3});
    options.name = "again";
    auto again = *Runtime::Create(options, device, rank.transport);
    ASSERT_TRUE(again->AddMatrix(model.Spec(0, MuonOptions{})).ok());
    EXPECT_TRUE(again->Commit().ok());
  });
}

}  // namespace
}  // namespace weft
