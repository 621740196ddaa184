// How libweft finds the NCCL transport: as the CUDA device (device/cuda_entry.h), in the same
// library.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "weft/device.h"
#include "weft/transport.h"

namespace weft::collectives {

struct NcclTransportEntry {
  const char* version;
  absl::StatusOr<std::unique_ptr<Transport>> (*create)(const NcclTransportOptions&, Device&);
};
inline constexpr char kNcclTransportEntry[] = "weftNcclTransport_v1";

}  // namespace weft::collectives
