#include "update/recipe.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace weft::update {
namespace {

struct Builder {
  Recipe recipe;
  Operand x = Operand::kX;
  Operand other_x = Operand::kNextX;

  void Add(RecipeStep step) { recipe.steps.push_back(step); }

  // R <- X X^T
  void Gram() { Add({.a = x, .b = x, .transpose_b = true, .d = Operand::kR, .symmetric = true}); }
  // Z <- c R R + b R
  void Polynomial(const Triple& t) {
    Add({.a = Operand::kR,
         .b = Operand::kR,
         .alpha = static_cast<float>(t.c),
         .beta = static_cast<float>(t.b),
         .c = Operand::kR,
         .d = Operand::kZ,
         .symmetric = true});
  }
  // X <- q X + shift X, into the other buffer.
  void Advance(Operand q, double shift) {
    Add({.a = q, .b = x, .beta = static_cast<float>(shift), .c = x, .d = other_x});
    std::swap(x, other_x);
  }
};

// One segment of Gram NS. A segment of one iteration is exactly an iteration of plain NS.
void AddSegment(Builder& builder, const std::vector<Triple>& triples) {
  builder.Gram();
  Operand q = Operand::kQ, other_q = Operand::kNextQ;
  for (std::size_t i = 0; i < triples.size(); ++i) {
    const auto a = static_cast<float>(triples[i].a);
    builder.Polynomial(triples[i]);
    if (triples.size() == 1) {
      builder.Advance(Operand::kZ, triples[i].a);
      return;
    }
    if (i == 0) {
      builder.Add({.kind = StepKind::kShiftDiagonal, .a = Operand::kZ, .beta = a, .d = q});
    } else {
      // Q <- Q Z + a Q
      builder.Add({.a = q, .b = Operand::kZ, .beta = a, .c = q, .d = other_q, .symmetric = true});
      std::swap(q, other_q);
    }
    if (i + 1 < triples.size()) {
      // RZ <- R Z + a R;  R <- Z RZ + a RZ
      builder.Add({.a = Operand::kR,
                   .b = Operand::kZ,
                   .beta = a,
                   .c = Operand::kR,
                   .d = Operand::kRz,
                   .symmetric = true});
      builder.Add({.a = Operand::kZ,
                   .b = Operand::kRz,
                   .beta = a,
                   .c = Operand::kRz,
                   .d = Operand::kR,
                   .symmetric = true});
    }
  }
  builder.Advance(q, 0);
}

// Share of plain NS's executed FLOPs that Gram NS may cost and still be chosen.
constexpr double kWorthwhile = 0.9;

// Requires valid options and segments.
Recipe BuildRecipe(const NewtonSchulzOptions& options, std::vector<int> segments, std::int64_t m,
                   std::int64_t n) {
  Builder builder;
  builder.recipe.m = m;
  builder.recipe.n = n;
  builder.recipe.segments = std::move(segments);
  std::vector<Triple> triples;
  for (int i = 0; i < options.iterations; ++i) {
    const auto& known = options.coefficients.triples;
    triples.push_back(known[std::min<std::size_t>(i, known.size() - 1)]);
  }
  std::vector<int> lengths = builder.recipe.segments;
  if (lengths == std::vector<int>{0}) lengths.assign(options.iterations, 1);
  std::size_t begin = 0;
  for (const int length : lengths) {
    AddSegment(builder, {triples.begin() + static_cast<std::ptrdiff_t>(begin),
                         triples.begin() + static_cast<std::ptrdiff_t>(begin + length)});
    begin += length;
  }
  builder.recipe.result = builder.x;
  return std::move(builder.recipe);
}

}  // namespace

NewtonSchulzCost Recipe::Cost() const {
  NewtonSchulzCost cost;
  for (const RecipeStep& step : steps) {
    if (step.kind != StepKind::kProduct) continue;
    const double square = 2.0 * static_cast<double>(m) * static_cast<double>(m);
    const double flops = square * static_cast<double>(step.is_long() ? n : m);
    ++(step.is_long() ? cost.long_products : cost.small_products);
    cost.dense_flops += flops;
    cost.symmetric_flops += step.symmetric ? flops / 2 : flops;
  }
  return cost;
}

absl::StatusOr<std::vector<int>> ResolveSegments(const NewtonSchulzOptions& options, std::int64_t m,
                                                 std::int64_t n, SegmentAdvisor& advisor) {
  WEFT_RETURN_IF_ERROR(Validate(options));
  if (!options.segments.empty()) return options.segments;
  const std::vector<int>& chosen = advisor.Choose(options);
  // On a nearly square matrix a small product costs almost as much as a long one and the smallest
  // singular values are close to zero: Gram NS saves little there and loses accuracy.
  const double plain = BuildRecipe(options, {0}, m, n).Cost().symmetric_flops;
  const double gram = BuildRecipe(options, chosen, m, n).Cost().symmetric_flops;
  if (gram > kWorthwhile * plain) return std::vector<int>{0};
  return chosen;
}

absl::StatusOr<Recipe> MakeRecipe(const NewtonSchulzOptions& options, std::int64_t rows,
                                  std::int64_t cols, SegmentAdvisor& advisor) {
  const std::int64_t m = std::min(rows, cols);
  const std::int64_t n = std::max(rows, cols);
  WEFT_ASSIGN_OR_RETURN(std::vector<int> segments, ResolveSegments(options, m, n, advisor));
  return BuildRecipe(options, std::move(segments), m, n);
}

absl::StatusOr<Recipe> MakeRecipe(const NewtonSchulzOptions& options, std::int64_t rows,
                                  std::int64_t cols) {
  SegmentAdvisor advisor;
  return MakeRecipe(options, rows, cols, advisor);
}

}  // namespace weft::update

namespace weft {

absl::StatusOr<NewtonSchulzCost> CostOf(const NewtonSchulzOptions& options, std::int64_t rows,
                                        std::int64_t cols) {
  WEFT_ASSIGN_OR_RETURN(const update::Recipe recipe, update::MakeRecipe(options, rows, cols));
  return recipe.Cost();
}

}  // namespace weft
