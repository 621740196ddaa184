// Transports that come from a library outside the tree.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weft/communicator.h"

#pragma GCC visibility push(default)
namespace weft {

struct PluginTransportOptions {
  int rank = 0;
  int size = 1;
  // Where the ranks meet, in the plug-in's words.
  std::string store;
  // Longest wait for a peer.
  absl::Duration deadline = absl::Minutes(10);
};

// The transport of the library that WEFT_TRANSPORT_PLUGIN names (c/plugin_v1.h, docs/plugins.md),
// of memory of the host. Collective. NotFound where there is no such library, FailedPrecondition
// for one of another ABI, else what the plug-in reports.
//
// Of the contract of Communicator the plug-in keeps what it says it keeps. Orders, argument checks
// and groups are Weft's.
absl::StatusOr<std::unique_ptr<Transport>> CreatePluginTransport(
    const PluginTransportOptions& options);

}  // namespace weft
#pragma GCC visibility pop
