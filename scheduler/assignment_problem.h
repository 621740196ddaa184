// The owner problem without names of tensors: how many matrices of which class exist, what batches
// of them cost, and what a rank and an inter group may carry.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/grid.h"

namespace weft::scheduler {

// Matrices of one class are interchangeable.
struct MatrixClass {
  std::vector<double> batch_costs;  // [b - 1]: one batch of b; finite, not negative, at least one
  std::int64_t state_bytes = 0;
  std::int64_t inter_bytes = 0;
  // The steps t that have the cost: those with (t - phase) mod period = 0.
  std::int32_t period = 1;
  std::int32_t phase = 0;
};

struct AssignmentProblem {
  ProcessGrid grid;
  std::vector<MatrixClass> classes;
  // Per matrix, in use order.
  std::vector<int> class_of;
  std::vector<std::int32_t> layers;  // may be empty
  std::vector<std::string> names;    // for messages; may be empty
  std::int64_t state_bytes_cap = 0;  // per rank; 0 = none
  double inter_group_factor = 0;     // over the mean; 0 = none
};

// What one rank owns: (class, count >= 1), classes ascending.
using Holding = std::vector<std::pair<int, int>>;

// Of a matrix, for messages.
std::string NameOf(const AssignmentProblem& problem, int matrix);

// Members of each class.
std::vector<int> ClassSizes(const AssignmentProblem& problem);

// Bytes that one inter group may carry; infinity without a factor.
double InterBytesCap(const AssignmentProblem& problem);

}  // namespace weft::scheduler
