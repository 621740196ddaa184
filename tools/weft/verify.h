// Compares the weights of a run with the serial reference in double precision.
#pragma once

#include <string>
#include <vector>

#include "tools/weft/rank_run.h"
#include "tools/weft/session.h"

namespace weft::tool {

struct MatrixCheck {
  std::string name;
  // ||W - R||_F / ||R - W0||_F with R the reference's weights and W0 the first ones: the error
  // relative to what the steps have changed.
  double error = 0;
  // What the error may be: the tolerance of the types, and the rounding of stored weights.
  double bound = 0;
  // ||W - R||_F / ||R||_F.
  double weight_error = 0;
  bool ok = false;
};

struct VerifyReport {
  std::vector<MatrixCheck> matrices;  // in the plan's order
  std::size_t worst = 0;              // largest error / bound
  bool ok = true;
};

VerifyReport Verify(const Session& session, const RunReport& report);

}  // namespace weft::tool
