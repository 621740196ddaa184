// The leaf behind CreateNcclTransport().
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "weft/device.h"
#include "weft/transport.h"

namespace weft::collectives::nccl {

absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(const NcclTransportOptions& options,
                                                           Device& device);

}  // namespace weft::collectives::nccl
