#include "tests/support/reference_ns.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::testing {
namespace {

struct Dense {
  std::int64_t rows, cols;
  std::vector<double> values;

  Dense(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), values(static_cast<std::size_t>(r * c), 0.0) {}
  double& operator()(std::int64_t i, std::int64_t j) { return values[i * cols + j]; }
  double operator()(std::int64_t i, std::int64_t j) const { return values[i * cols + j]; }
};

Dense Transposed(const Dense& x) {
  Dense y(x.cols, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) y(j, i) = x(i, j);
  }
  return y;
}

Dense Multiplied(const Dense& x, const Dense& y) {
  Dense z(x.rows, y.cols);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t k = 0; k < x.cols; ++k) {
      const double factor = x(i, k);
      for (std::int64_t j = 0; j < y.cols; ++j) z(i, j) += factor * y(k, j);
    }
  }
  return z;
}

}  // namespace

std::vector<double> ReferenceNewtonSchulz(const std::vector<double>& g, std::int64_t rows,
                                          std::int64_t cols, const ReferenceTriples& triples) {
  Dense x(rows, cols);
  x.values = g;
  if (rows > cols) x = Transposed(x);
  // Scaled by the largest element first, so that no square leaves float64's range.
  double largest = 0;
  for (const double value : x.values) largest = std::max(largest, std::abs(value));
  if (largest == 0) return g;
  double sum = 0;
  for (double& value : x.values) {
    value /= largest;
    sum += value * value;
  }
  for (double& value : x.values) value /= std::sqrt(sum);
  for (const auto& [a, b, c] : triples) {
    const Dense gram = Multiplied(x, Transposed(x));
    Dense polynomial = Multiplied(gram, gram);
    for (std::size_t i = 0; i < polynomial.values.size(); ++i) {
      polynomial.values[i] = b * gram.values[i] + c * polynomial.values[i];
    }
    Dense next = Multiplied(polynomial, x);
    for (std::size_t i = 0; i < next.values.size(); ++i) next.values[i] += a * x.values[i];
    x = std::move(next);
  }
  return rows > cols ? Transposed(x).values : x.values;
}

double RelativeError(const std::vector<float>& x, const std::vector<double>& y) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return size > 0 ? std::sqrt(error / size) : std::sqrt(error);
}

}  // namespace weft::testing
