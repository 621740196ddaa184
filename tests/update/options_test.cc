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
  ns.iterations = 1001;
  EXPECT_EQ(Complaint(ns), "iterations is 1001, more than the 1000 supported");
  ns = {};
  ns.operand_type = DType(9);
  EXPECT_EQ(Complaint(ns), "operand_type has a value that names nothing");
  ns = {};
  ns.segments = {2, 2};
  EXPECT_EQ(Complaint(ns), "segments [2,2] add up to 4, not to the 5 iterations");
  ns.segments = {6, -1};
  EXPECT_EQ(Complaint(ns), "segments [6,-1] has a length below 1");
  // In 32 bits these add up to 5.
  ns.segments = {2147483647, 2147483647, 7};
  EXPECT_EQ(Complaint(ns),
            "segments [2147483647,2147483647,7] add up to 4294967301, not to the 5 iterations");
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

// A floor that vanishes would divide the zeros of a gradient by zero.
TEST(Options, WhatIsDividedByIsAPositiveNormalNumberInSinglePrecision) {
  NewtonSchulzOptions ns;
  ns.norm_floor = 0;
  EXPECT_TRUE(Validate(ns).ok()) << "without clamping it is only compared with";
  ns.clamp_to_floor = true;
  for (const float floor : {0.0f, 1e-45f, INFINITY, NAN}) {
    ns.norm_floor = floor;
    EXPECT_NE(Complaint(ns).find("not a positive normal number"), std::string::npos);
  }
  ns.norm_floor = std::numeric_limits<float>::min();
  EXPECT_TRUE(Validate(ns).ok());
  AdamWOptions adamw;
  for (const double eps : {0.0, -1e-8, 1e-60, 1e-40, 1e39, static_cast<double>(NAN)}) {
    adamw.eps = eps;
    EXPECT_NE(Complaint(adamw).find("eps is"), std::string::npos);
  }
  adamw.eps = 1.2e-38;
  EXPECT_TRUE(Validate(adamw).ok());
  MuonOptions muon;
  muon.scale = Scale(9);
  EXPECT_EQ(Complaint(muon), "scale has a value that names nothing");
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
