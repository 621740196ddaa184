// The model with its new weights, as a file.
#pragma once

#include "absl/status/status.h"
#include "tools/weft/rank_run.h"
#include "tools/weft/session.h"

namespace weft::tool {

// Every tensor of the model under its name, with its shape and dtype: updated ones rounded back to
// the file's type, all others byte for byte. Weights of a shape manifest that were not updated are
// written as their seed makes them.
absl::Status WriteOutput(const Session& session, const RunReport& report);

}  // namespace weft::tool
