#include "tools/reference/update.h"

#include <algorithm>
#include <cmath>

#include "tools/reference/matmul.h"

namespace weft::reference {
namespace {

// Scaled by the largest element first, so that squares neither overflow nor vanish.
double FrobeniusNorm(const std::vector<double>& x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  if (largest == 0) return 0;
  double sum = 0;
  for (const double value : x) sum += (value / largest) * (value / largest);
  return largest * std::sqrt(sum);
}

}  // namespace

std::vector<double> Orthogonalize(const MuonSettings& settings, const std::vector<double>& u,
                                  std::int64_t rows, std::int64_t cols, int threads) {
  const double norm = FrobeniusNorm(u);
  if (u.empty() || (!settings.clamp && norm < settings.norm_floor)) {
    return std::vector<double>(u.size(), 0.0);
  }
  const double divisor = settings.clamp ? std::max(norm, settings.norm_floor) : norm;
  const bool tall = rows > cols;
  const std::int64_t m = std::min(rows, cols);
  const std::int64_t n = std::max(rows, cols);
  std::vector<double> x = tall ? Transpose(u, rows, cols) : u;
  for (double& value : x) value /= divisor;
  for (const Polynomial& p : settings.iterations) {
    const std::vector<double> gram = MatMul(x, Transpose(x, m, n), m, n, m, threads);
    std::vector<double> b = MatMul(gram, gram, m, m, m, threads);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = p.b * gram[i] + p.c * b[i];
    const std::vector<double> bx = MatMul(b, x, m, m, n, threads);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = p.a * x[i] + bx[i];
  }
  return tall ? Transpose(x, m, n) : x;
}

std::vector<double> RowNorm(const MuonSettings& settings, const std::vector<double>& u,
                            std::int64_t rows, std::int64_t cols) {
  const bool tall = rows > cols;
  const std::int64_t m = std::min(rows, cols);
  const std::int64_t n = std::max(rows, cols);
  std::vector<double> x = tall ? Transpose(u, rows, cols) : u;
  for (std::int64_t i = 0; i < m; ++i) {
    const std::vector<double> row(x.begin() + i * n, x.begin() + (i + 1) * n);
    const double divisor = std::max(FrobeniusNorm(row), settings.eps);
    for (std::int64_t j = 0; j < n; ++j) x[i * n + j] *= settings.gamma / divisor;
  }
  return tall ? Transpose(x, m, n) : x;
}

void MuonStep(const MuonSettings& settings, std::int64_t rows, std::int64_t cols,
              const std::vector<double>& gradient, std::vector<double>& momentum,
              std::vector<double>& weight, int threads) {
  const double mu = settings.momentum;
  std::vector<double> u(gradient.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    momentum[i] = mu * momentum[i] + (1 - mu) * gradient[i];
    u[i] = settings.nesterov ? mu * momentum[i] + (1 - mu) * gradient[i] : momentum[i];
  }
  const std::vector<double> direction = settings.row_norm
                                            ? RowNorm(settings, u, rows, cols)
                                            : Orthogonalize(settings, u, rows, cols, threads);
  const double r = static_cast<double>(rows);
  const double c = static_cast<double>(cols);
  const double scale =
      settings.match_rms_adamw ? 0.2 * std::sqrt(std::max(r, c)) : std::sqrt(std::max(1.0, r / c));
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] =
        weight[i] * (1 - settings.lr * settings.weight_decay) - settings.lr * scale * direction[i];
  }
}

void AdamWStep(const AdamWSettings& settings, std::int64_t t, const std::vector<double>& gradient,
               std::vector<double>& m, std::vector<double>& v, std::vector<double>& weight) {
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(t));
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double g = gradient[i];
    weight[i] *= 1 - settings.lr * settings.weight_decay;
    m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * g;
    v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * g * g;
    weight[i] -=
        settings.lr * (m[i] / correction1) / (std::sqrt(v[i] / correction2) + settings.eps);
  }
}

}  // namespace weft::reference
