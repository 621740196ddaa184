// The comparison with the reference must be able to fail.
#include "tools/weft/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/temporary_folder.h"
#include "tools/weft/rank_run.h"
#include "tools/weft/session.h"
#include "weft/safetensors.h"
#include "weft/transport.h"

namespace weft::tool {
namespace {

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() {
    const std::string manifest = folder_ / "shapes.json";
    testing::WriteAll(manifest, R"({"matrices": [{"name": "w", "shape": [6, 9]},
        {"name": "b", "shape": [5]}, {"name": "v", "shape": [4, 4], "dtype": "BF16"}]})");
    Options options;
    options.model = manifest;
    options.steps = 2;
    options.muon.weight_decay = 0.1;
    Run(options);
  }

  void Run(Options options) {
    options.verify = true;
    report_ = {};
    auto session = PrepareRun(options);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    LocalTransportOptions local;
    local.topology = session_.settings.runtime.topology;
    auto transports = CreateLocalTransports(local);
    EXPECT_TRUE(transports.ok());
    const absl::Status status = RunRank(session_, *transports->front(), report_, {});
    EXPECT_TRUE(status.ok()) << status;
  }

  // The same session once more, to be changed; sessions own files and are not copied.
  Session Again() {
    auto session = PrepareRun(session_.options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  float* Floats(std::size_t matrix) {
    return reinterpret_cast<float*>(report_.weights[matrix].data());
  }

  const testing::TemporaryFolder folder_;
  Session session_;
  RunReport report_;
};

TEST_F(VerifyTest, AcceptsTheRun) {
  const VerifyReport verify = *Verify(session_, report_);
  EXPECT_TRUE(verify.ok);
  ASSERT_EQ(verify.matrices.size(), 3u);
  for (const MatrixCheck& check : verify.matrices) {
    EXPECT_TRUE(check.ok) << check.name;
    EXPECT_LE(check.error, check.bound);
  }
}

TEST_F(VerifyTest, FindsOneWrongElementNamesItsMatrixAndIgnoresOthers) {
  for (std::size_t i = 0; i < 2; ++i) {
    RunReport damaged = report_;
    float* weights = reinterpret_cast<float*>(damaged.weights[i].data());
    weights[3] += 0.01f;
    const VerifyReport verify = *Verify(session_, damaged);
    EXPECT_FALSE(verify.ok);
    EXPECT_EQ(verify.worst, i);
    for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(verify.matrices[j].ok, j != i);
  }
}

// A large error of which much is allowed is not the worst one.
TEST_F(VerifyTest, TheWorstUsesMostOfWhatIsAllowed) {
  const VerifyReport verify = *Verify(session_, report_);
  for (const MatrixCheck& check : verify.matrices) {
    EXPECT_LE(check.Used(), verify.matrices[verify.worst].Used());
    EXPECT_LE(check.Used(), 1);
  }
  MatrixCheck tight, loose, failed, lost;
  tight.error = 2e-5, tight.bound = 1e-4, tight.ok = true;
  loose.error = 1e-2, loose.bound = 0.1, loose.ok = true;
  failed.error = 2, failed.bound = 1;
  lost.error = std::numeric_limits<double>::quiet_NaN(), lost.bound = 1;
  const std::vector<MatrixCheck> order = {lost, failed, tight, loose};
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = 0; j < order.size(); ++j) {
      EXPECT_EQ(Worse(order[i], order[j]), i < j) << i << " " << j;
    }
  }
}

TEST_F(VerifyTest, FindsAMissingUpdateAndNotANumber) {
  const RoutedMatrix& first = session_.routing.matrices[0];
  ASSERT_TRUE(InitialWeights(session_, first, 0, first.rows * first.cols, Floats(0)).ok());
  Floats(1)[0] = std::numeric_limits<float>::quiet_NaN();
  const VerifyReport verify = *Verify(session_, report_);
  EXPECT_FALSE(verify.matrices[0].ok);
  EXPECT_NEAR(verify.matrices[0].error, 1.0, 0.01);
  EXPECT_FALSE(verify.matrices[1].ok);
  EXPECT_TRUE(verify.matrices[2].ok);
}

// The run's rules against a reference with others, one change at a time: matrix 0 takes Muon,
// matrix 1 AdamW.
TEST_F(VerifyTest, FindsOtherRatesMomentsAndDecays) {
  const auto caught = [&](std::size_t matrix, auto change) {
    Session other = Again();
    change(other.settings);
    const VerifyReport verify = *Verify(other, report_);
    EXPECT_FALSE(verify.matrices[matrix].ok);
    EXPECT_TRUE(verify.matrices[1 - matrix].ok);
  };
  caught(0, [](Settings& s) { s.muon.lr *= 1.001; });
  caught(0, [](Settings& s) { s.muon.momentum -= 0.01; });
  caught(0, [](Settings& s) { s.muon.nesterov = false; });
  caught(0, [](Settings& s) { s.muon.weight_decay = 0; });
  caught(1, [](Settings& s) { s.adamw.lr *= 1.001; });
  caught(1, [](Settings& s) { s.adamw.beta1 -= 0.01; });
  caught(1, [](Settings& s) { s.adamw.beta2 -= 0.01; });
  caught(1, [](Settings& s) { s.adamw.weight_decay = 0.1; });
}

// A decay of 1e-5 a step changes 64 bits of a weight's last place at most: rounding is seen in it.
TEST_F(VerifyTest, DecayAloneIsAcceptedAndAnotherIsNot) {
  constexpr int kTensors = 200;
  const std::string model = folder_ / "model.safetensors";
  const std::string zeros = folder_ / "zeros.safetensors";
  std::vector<std::vector<float>> weights;
  const std::vector<float> zero(4, 0.0f);
  std::vector<SafetensorsTensor> tensors, gradients;
  for (int i = 0; i < kTensors; ++i) {
    weights.push_back({});
    for (int j = 0; j < 4; ++j) weights.back().push_back(0.01f * std::cos(float(4 * i + j)));
  }
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = "t" + std::to_string(i);
    tensors.push_back({name, "F32", {4}, testing::BytesOf(weights[i])});
    gradients.push_back({name, "F32", {4}, testing::BytesOf(zero)});
  }
  ASSERT_TRUE(WriteSafetensors(model, tensors).ok());
  ASSERT_TRUE(WriteSafetensors(zeros, gradients).ok());
  Options options;
  options.model = model;
  options.gradients = zeros;
  options.steps = 3;
  Run(options);
  const VerifyReport verify = *Verify(session_, report_);
  EXPECT_TRUE(verify.ok) << verify.matrices[verify.worst].error;
  EXPECT_LT(verify.matrices[0].bound, 0.03) << "steps of decay, in units of their rounding";
  // Errors are there: the allowance is of their size.
  double most = 0;
  for (const MatrixCheck& check : verify.matrices) most = std::max(most, check.error);
  EXPECT_GT(most, 0.1 * verify.matrices[0].bound);
  for (const double factor : {0.0, 0.95, 1.05}) {
    Session other = Again();
    other.settings.adamw.weight_decay *= factor;
    const VerifyReport wrong = *Verify(other, report_);
    for (const MatrixCheck& check : wrong.matrices) EXPECT_FALSE(check.ok) << factor;
  }
}

}  // namespace
}  // namespace weft::tool
