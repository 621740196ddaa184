// The model of benches that time plans.
#pragma once

#include <vector>

#include "absl/strings/str_cat.h"
#include "weft/plan.h"

namespace weft::bench {

// `count` matrices of four shapes, as a transformer's layers have them. FLOPs are left at 0.
inline std::vector<PlanMatrix> TransformerMatrices(int count, Layout layout) {
  std::vector<PlanMatrix> matrices;
  for (int m = 0; m < count; ++m) {
    PlanMatrix& matrix = matrices.emplace_back();
    matrix.name = absl::StrCat("m", m);
    matrix.rows = m % 4 == 3 ? 9728 : 2560;
    matrix.cols = m % 4 == 2 ? 9728 : 2560;
    matrix.layout = layout;
  }
  return matrices;
}

}  // namespace weft::bench
