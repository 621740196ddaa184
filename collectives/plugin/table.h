// The plug-in's table, and its errors as statuses.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/failure.h"
#include "weft/c/plugin_v1.h"

namespace weft::collectives::plugin {

// The library's, loaded and checked. NotFound, FailedPrecondition.
absl::StatusOr<const weftTransportPlugin_v1_t*> FindTable();

// What a call is given to fill in.
weftPluginError_t NoError();
// Of a call that failed. `rank` is whose failure it is when the plug-in names nobody.
Failure FailureOf(weftResult_t result, const weftPluginError_t& error, int rank);

}  // namespace weft::collectives::plugin
