// The leaf behind CreateGlooTransport().
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "weft/transport.h"

namespace weft::collectives::gloo {

absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(const GlooTransportOptions& options);

}  // namespace weft::collectives::gloo
