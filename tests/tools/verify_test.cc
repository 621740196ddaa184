// The comparison with the reference must be able to fail.
#include "tools/weft/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/tools/temporary_folder.h"
#include "tools/weft/rank_run.h"
#include "tools/weft/session.h"
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
    options.verify = true;
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

}  // namespace
}  // namespace weft::tool
