// Options of the update rules, in the formulas' own symbols (docs/update-rules.md).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/dtype.h"

#pragma GCC visibility push(default)
namespace weft {

// One iteration's odd polynomial p(s) = a s + b s^3 + c s^5, applied to the singular values.
struct Triple {
  double a = 0, b = 0, c = 0;
  // Lexicographic.
  friend auto operator<=>(const Triple&, const Triple&) = default;
};

// The triples of an NS run, first iteration first. Where a run has more iterations than triples,
// the last triple repeats; a run with fewer uses the first ones.
struct Coefficients {
  std::string name = "user";
  std::vector<Triple> triples;

  // The same triple for every iteration: (3.4445, -4.7750, 2.0315).
  static Coefficients Quintic();
  // The five triples of arXiv 2505.16932, with a/s, b/s^3, c/s^5 for the safety factor s = 1.05.
  static Coefficients PolarExpress();
  static Coefficients You();
  // "quintic", "polar_express" or "you"; InvalidArgument names the known ones.
  static absl::StatusOr<Coefficients> Named(std::string_view name);
};

inline constexpr int kMostNewtonSchulzIterations = 1000;

struct NewtonSchulzOptions {
  Coefficients coefficients = Coefficients::Quintic();
  int iterations = 5;  // 1 to kMostNewtonSchulzIterations
  // Type of the products' operands; accumulation is fp32.
  DType operand_type = DType::kF32;
  // How the iterations are computed. Empty = chosen: Gram NS with the segments that
  // ChooseSegments() finds where that saves a tenth of the executed FLOPs, otherwise (square and
  // nearly square matrices) plain NS. {0} = plain NS always. Otherwise the lengths of the Gram
  // segments, each >= 1, with sum == iterations.
  std::vector<int> segments;
  // A Frobenius norm below this gives a zero direction.
  float norm_floor = 1e-30f;
  // Divide by max(norm, norm_floor) instead, as torch.optim.Muon does with 1e-7. The floor must
  // then be a positive normal number.
  bool clamp_to_floor = false;

  friend bool operator==(const NewtonSchulzOptions& a, const NewtonSchulzOptions& b) {
    // The name of the coefficients changes nothing.
    return a.coefficients.triples == b.coefficients.triples && a.iterations == b.iterations &&
           a.operand_type == b.operand_type && a.segments == b.segments &&
           a.norm_floor == b.norm_floor && a.clamp_to_floor == b.clamp_to_floor;
  }
};

// What a set of segments costs in robustness: the scalar model of Gram NS in which a spurious
// eigenvalue of at most `epsilon` (negative) appears in each computed Gram matrix.
struct SegmentAnalysis {
  std::vector<int> segments;
  double epsilon = 0;
  // max over iterations of max|q| / min|q|; infinite when the recurrence diverges.
  double condition = 0;
  // condition <= kSafeCondition. Low-precision runs of such sets were seen to agree with plain NS,
  // others not to.
  bool safe = false;
  static constexpr double kSafeCondition = 100;
};

// Worst spurious Gram eigenvalue assumed for an operand type: bf16 -3.2e-3, fp16 -4e-4,
// fp32 -1e-6.
double SpuriousEigenvalue(DType operand_type);
// Longest segment that does not cost an operand type accuracy against plain NS: 2 for fp32 and
// fp16, whose rounding errors longer ones amplify several times; 0 (no bound beyond safety) for
// bf16.
int LongestSegment(DType operand_type);
SegmentAnalysis AnalyzeSegments(const Coefficients& coefficients, const std::vector<int>& segments,
                                double epsilon);
// The safe set with the fewest FLOPs for matrices longer than wide, the best conditioned among
// equals; plain NS ({0}) if no set is safe, and for more than 12 iterations. No segment is longer
// than `longest`, where it is not 0. The time doubles with each iteration.
std::vector<int> ChooseSegments(const Coefficients& coefficients, int iterations, double epsilon,
                                int longest = 0);

// Products of one NS run on a rows x cols matrix: "long" ones cost 2 m^2 n, "small" ones 2 m^3 with
// m = min, n = max of the shape. dense_flops counts every product in full; symmetric_flops gives
// half to those with a symmetric result, which is what is executed.
struct NewtonSchulzCost {
  int long_products = 0;
  int small_products = 0;
  double dense_flops = 0;
  double symmetric_flops = 0;
};
// InvalidArgument for segments that do not add up to the iterations.
absl::StatusOr<NewtonSchulzCost> CostOf(const NewtonSchulzOptions& options, std::int64_t rows,
                                        std::int64_t cols);

enum class Scale {
  kOriginal,       // sqrt(max(1, rows / cols))
  kMatchRmsAdamW,  // 0.2 * sqrt(max(rows, cols))
};
double ScaleFactor(Scale scale, std::int64_t rows, std::int64_t cols);

// Periodic row-wise Muon (arXiv 2608.20818): NS in one of `period` steps (a refresh), in the others
//   D = gamma * RowNorm(U),  each row of the orientation with rows <= cols over max(its norm, eps).
// Scale, momentum and decay are the same in all steps.
inline constexpr int kMostPeriod = 1000;
struct PeriodicOptions {
  int period = 1;  // K, 1 to kMostPeriod; 1: NS in every step. The paper's is 3
  double gamma = 0.15;
  double eps = 1e-8;  // 1e-20 to 1

  friend bool operator==(const PeriodicOptions&, const PeriodicOptions&) = default;
};

// For MatrixSpec::row_blocks and column_blocks, `count` blocks of `size` rows or columns: heads,
// experts. Less than one of either is refused when the matrix is registered.
std::vector<std::int64_t> EqualBlocks(std::int64_t count, std::int64_t size);

// M <- mu M + (1 - mu) G;  U = nesterov ? mu M + (1 - mu) G : M;  D = NS(U);
// W <- W (1 - lr wd) - lr * scale * D.
struct MuonOptions {
  double lr = 0.02;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.0;
  Scale scale = Scale::kOriginal;
  NewtonSchulzOptions newton_schulz;
  PeriodicOptions periodic;
};

// torch.optim.AdamW (formula at Math::AdamW).
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;  // positive and normal in fp32, where it keeps zero gradients from giving NaN
  double weight_decay = 0.01;
};

// InvalidArgument with one sentence that names the field.
absl::Status Validate(const NewtonSchulzOptions& options);
absl::Status Validate(const MuonOptions& options);
absl::Status Validate(const AdamWOptions& options);

}  // namespace weft
#pragma GCC visibility pop
