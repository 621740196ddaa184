#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/update/runs.h"
#include "weft/update.h"

namespace weft {
namespace {

template <typename Options>
std::string Complaint(const Options& options) {
  const absl::Status status = Validate(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Options, DefaultsAreValid) {
  EXPECT_TRUE(Validate(MuonOptions{}).ok());
  EXPECT_TRUE(Validate(AdamWOptions{}).ok());
  EXPECT_TRUE(Validate(NewtonSchulzOptions{}).ok());
}

TEST(Options, ComplaintsNameTheField) {
  NewtonSchulzOptions ns;
  ns.iterations = 0;
  EXPECT_EQ(Complaint(ns), "iterations is 0, not at least 1");
  ns = {};
  ns.segments = {2, 2};
  EXPECT_EQ(Complaint(ns), "segments [2,2] add up to 4, not to the 5 iterations");
  ns.segments = {6, -1};
  EXPECT_EQ(Complaint(ns), "segments [6,-1] has a length below 1");
  ns = {};
  ns.coefficients.triples.clear();
  EXPECT_EQ(Complaint(ns), "coefficients has no triples");
  ns = {};
  ns.norm_floor = -1;
  EXPECT_EQ(Complaint(ns), "norm_floor is -1, not a number >= 0");
  MuonOptions muon;
  muon.momentum = 1;
  EXPECT_EQ(Complaint(muon), "momentum is 1, not in [0, 1)");
  muon = {};
  muon.lr = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Complaint(muon), "lr is nan, not a number >= 0");
  AdamWOptions adamw;
  adamw.beta2 = -0.5;
  EXPECT_EQ(Complaint(adamw), "beta2 is -0.5, not in [0, 1)");
}

TEST(Options, CoefficientsByName) {
  for (const Coefficients& coefficients : testing::AllCoefficients()) {
    EXPECT_EQ(Coefficients::Named(coefficients.name)->triples, coefficients.triples);
  }
  EXPECT_EQ(Coefficients::Named("cubic").status().message(),
            "coefficients 'cubic' are not quintic, polar_express or you");
}

TEST(Options, ScaleFactors) {
  EXPECT_EQ(ScaleFactor(Scale::kOriginal, 100, 400), 1);
  EXPECT_EQ(ScaleFactor(Scale::kOriginal, 400, 100), 2);
  EXPECT_DOUBLE_EQ(ScaleFactor(Scale::kMatchRmsAdamW, 100, 400), 4);
  EXPECT_DOUBLE_EQ(ScaleFactor(Scale::kMatchRmsAdamW, 400, 100), 4);
}

}  // namespace
}  // namespace weft
