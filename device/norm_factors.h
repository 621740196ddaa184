// What a row or a column is multiplied by so that it is gamma over its norm, worked out where the
// kernel runs. Comparisons are written so that a NaN stays.
#pragma once

#include <cmath>

#include "device/host_device.h"

namespace weft::device {

// Of a row whose squares add up to `sum`: gamma / max(its norm, eps), 0 for zeros.
WEFT_HD inline double RowFactor(double sum, double eps, double gamma) {
  if (sum == 0) return 0;
  const double norm = std::sqrt(sum);
  return gamma / (norm < eps ? eps : norm);
}

// Of a column whose squares add up to sum * unit^2 (Math::ColumnSquares). A sum of zero may be one
// of squares too small for fp32.
WEFT_HD inline double ColumnFactor(double sum, double unit, double eps, double gamma) {
  const double norm = unit * std::sqrt(sum);
  if (norm == 0 && eps == 0) return 0;
  return gamma / (norm < eps ? eps : norm);
}

}  // namespace weft::device
