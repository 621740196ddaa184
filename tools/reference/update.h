// The whole update of one matrix, serial and in double precision: what Weft's results are compared
// with. Shares no code with Weft. Matrices are row-major.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::reference {

struct Polynomial {
  double a, b, c;
};

struct MuonSettings {
  double lr = 0.02;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0;
  // 0.2 * sqrt(max(rows, cols)) instead of sqrt(max(1, rows / cols)).
  bool match_rms_adamw = false;
  // One per iteration, first first.
  std::vector<Polynomial> iterations;
  // A norm below the floor gives a zero direction; with clamp the divisor is max(norm, floor).
  double norm_floor = 1e-30;
  bool clamp = false;
  // The row norm takes the place of NS: gamma * rows of the orientation with rows <= cols, each
  // over max(its norm, eps).
  bool row_norm = false;
  double gamma = 0.15;
  double eps = 1e-8;
};

struct AdamWSettings {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

// Plain Newton-Schulz: with X the m <= n orientation of U / ||U||_F, per iteration
// A = X X^T; X <- a X + (b A + c A^2) X.
std::vector<double> Orthogonalize(const MuonSettings& settings, const std::vector<double>& u,
                                  std::int64_t rows, std::int64_t cols, int threads = 1);

// The direction between refreshes of periodic Muon.
std::vector<double> RowNorm(const MuonSettings& settings, const std::vector<double>& u,
                            std::int64_t rows, std::int64_t cols);

// One step; `momentum` and `weight` are updated in place.
void MuonStep(const MuonSettings& settings, std::int64_t rows, std::int64_t cols,
              const std::vector<double>& gradient, std::vector<double>& momentum,
              std::vector<double>& weight, int threads = 1);

// Step number `t`, counted from 1.
void AdamWStep(const AdamWSettings& settings, std::int64_t t, const std::vector<double>& gradient,
               std::vector<double>& m, std::vector<double>& v, std::vector<double>& weight);

}  // namespace weft::reference
