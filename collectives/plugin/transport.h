// The leaf behind CreatePluginTransport().
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "weft/plugin_transport.h"

namespace weft::collectives::plugin {

// `options` have been checked.
absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(const PluginTransportOptions& options);

}  // namespace weft::collectives::plugin
