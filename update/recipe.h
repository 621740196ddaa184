// The list of products that make up one Newton-Schulz run. What is executed and what is counted
// both come from it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "update/segment_advisor.h"
#include "weft/update.h"

namespace weft::update {

// The buffers that a run works in. X and X' are m x n, the others m x m (m <= n).
enum class Operand : std::uint8_t { kX, kNextX, kR, kZ, kRz, kQ, kNextQ };
inline constexpr int kOperandCount = 7;
constexpr bool IsLong(Operand operand) {
  return operand == Operand::kX || operand == Operand::kNextX;
}

enum class StepKind : std::uint8_t {
  kProduct,        // d = alpha * a * op(b) + beta * c
  kShiftDiagonal,  // d = a + beta * I, no product
};

struct RecipeStep {
  StepKind kind = StepKind::kProduct;
  Operand a = Operand::kX;
  Operand b = Operand::kX;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;
  Operand c = Operand::kX;  // read where beta != 0
  Operand d = Operand::kX;
  bool symmetric = false;  // the result is

  // Some operand is m x n: 2 m^2 n FLOPs, else 2 m^3.
  bool is_long() const { return IsLong(a) || IsLong(b); }
};

struct Recipe {
  std::int64_t m = 0;  // short side
  std::int64_t n = 0;  // long side
  // As executed: {0} for plain NS, else the Gram segments.
  std::vector<int> segments;
  std::vector<RecipeStep> steps;
  // Where the result is; the input is in kX.
  Operand result = Operand::kX;

  NewtonSchulzCost Cost() const;
};

// The segments that `options` ask for on an m x n matrix: the given ones, or the chosen ones.
// InvalidArgument as Validate().
absl::StatusOr<std::vector<int>> ResolveSegments(const NewtonSchulzOptions& options, std::int64_t m,
                                                 std::int64_t n, SegmentAdvisor& advisor);

// The recipe for rows x cols matrices (the long side may be either). Who makes many keeps one
// advisor for all of them.
absl::StatusOr<Recipe> MakeRecipe(const NewtonSchulzOptions& options, std::int64_t rows,
                                  std::int64_t cols, SegmentAdvisor& advisor);
absl::StatusOr<Recipe> MakeRecipe(const NewtonSchulzOptions& options, std::int64_t rows,
                                  std::int64_t cols);

}  // namespace weft::update
