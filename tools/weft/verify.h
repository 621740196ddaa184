// Compares the weights of a run with the serial reference in double precision.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

  // error / bound, what has been used up of what is allowed; infinite for an error that is no
  // number or that nothing allows. At most 1 where ok.
  double Used() const;
};

// The order in which checks matter: those that failed, then by Used().
bool Worse(const MatrixCheck& a, const MatrixCheck& b);

struct VerifyReport {
  std::vector<MatrixCheck> matrices;  // in the plan's order
  std::size_t worst = 0;              // the first that no other is Worse() than
  bool ok = true;
};

// Fails where the model or its gradients can no longer be read.
absl::StatusOr<VerifyReport> Verify(const Session& session, const RunReport& report);

}  // namespace weft::tool
