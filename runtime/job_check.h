// What a submitted job says, held against what it may say.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "weft/job.h"
#include "weft/plan.h"

namespace weft::runtime {

// Where a matrix stands in its micro-steps of the open step, on this rank.
struct MicroSteps {
  int meant = 0;              // in every step; 0: any number
  int done = 0;               // that more follow after
  bool has_gradient = false;  // one of them had one
};

// By matrix, as a step begins.
std::vector<MicroSteps> MicroStepsOf(const Plan& plan);

// InvalidArgument, naming the matrix, for a rate that is not finite and >= 0, and for `more` where
// it is the last micro-step, or its absence where it is not.
absl::Status CheckJob(const std::string& matrix, const MicroSteps& micro_steps,
                      const MatrixJob& job);

// Of a matrix that has had no last job: "'w'", or "'w' (in 1 of 4 micro-steps)".
std::string WhatIsMissing(const std::string& matrix, const MicroSteps& micro_steps);

}  // namespace weft::runtime
