// How far a result is from its reference.
#pragma once

#include <cmath>
#include <vector>

namespace weft::testing {

// ||x - y||_F / ||y||_F; ||x||_F where y is zero. Lengths must agree.
inline double RelativeError(const std::vector<float>& x, const std::vector<double>& y) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return size > 0 ? std::sqrt(error / size) : std::sqrt(error);
}

}  // namespace weft::testing
