// The ranks of a command: threads of this process, or this process as one of several.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/weft/options.h"
#include "weft/communicator.h"
#include "weft/topology.h"

namespace weft::tool {

// Runs `rank` once per rank of the topology, each in a thread of its own (rank 0 in the caller's),
// over local transports. The failure that came first. `rank` does not throw, and aborts its
// transport where it fails.
absl::Status RunAsThreads(const Topology& topology, absl::Duration deadline,
                          const std::function<absl::Status(Transport&)>& rank);

// As --rank, --world and --store say.
absl::StatusOr<std::unique_ptr<Transport>> JoinOthers(const Options& options);

// Of what JoinOthers() returns: a store that is missing, no directory, or of an earlier run or
// another world; all else is the network's or a peer's doing.
bool IsBadStore(const absl::Status& status);

// Says on stderr that a topology file's links are not emulated, where that is so and nobody else
// says it.
void WarnOfLinks(const Options& options, const Topology& topology);

}  // namespace weft::tool
