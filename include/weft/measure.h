// Measures what a cost profile holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weft/communicator.h"
#include "weft/cost_profile.h"
#include "weft/device.h"
#include "weft/topology.h"
#include "weft/update.h"

#pragma GCC visibility push(default)
namespace weft {

struct MatrixShape {
  std::int64_t rows = 1;  // >= 1
  std::int64_t cols = 1;
};

// Equal on all ranks, but for on_sample.
struct MeasureOptions {
  // Prefix of the communicators' names, new to the transport.
  std::string name = "weft profile";
  Topology topology;  // its grid must have the transport's size
  // Newton-Schulz and row norm of each shape, once for both ways that it may lie, in each batch.
  std::vector<MatrixShape> shapes;
  std::vector<int> batches = {1, 2, 4, 8};
  NewtonSchulzOptions newton_schulz;
  // Payloads of the collectives, in bytes; whole fp32 elements, so multiples of 4. At least two
  // unless the world has one rank, which has no collectives.
  std::vector<std::int64_t> sizes = {4096, 32768, 262144, 2097152, 8388608};
  int repetitions = 9;  // of each measurement, after one that is not counted
  // What takes long is measured less often: repetitions end after about this time, but three are
  // made, and batches of a shape beyond the first one that takes longer are left out.
  absl::Duration longest = absl::Seconds(1);
  // Batches whose matrices and workspace take more memory on a rank are left out, the smallest
  // batch never.
  std::int64_t memory_bytes = std::int64_t{1} << 28;
  // Called before each measurement with what it is, on every rank. May be empty.
  std::function<void(const std::string&)> on_sample;
};

// InvalidArgument with one sentence that names the option. MeasureCosts() also checks that the grid
// has the transport's size.
absl::Status Validate(const MeasureOptions& options);

// How often on_sample is called at most.
std::int64_t MostMeasurements(const MeasureOptions& options);

// Collective, blocking, on all ranks of the transport, which nothing else uses meanwhile. Every
// rank gets the same profile. Times are taken in the stream, on the device's clock.
//  - Compute runs on all ranks at once, as it does in a step; a repetition counts with the slowest.
//  - Collectives run alone, each behind a barrier of its members: in the world; where nodes and
//    ranks per node are several, also inside each node (all nodes at once, which share nothing) and
//    between those with local rank 0 (one inter group, which has its links for itself). A
//    repetition counts with the member that takes longest. The root is the first member.
// InvalidArgument for bad options, before anything runs; FailedPrecondition on all ranks where one
// has another device than rank 0; what fails on one rank fails on all.
absl::StatusOr<CostProfile> MeasureCosts(Device& device, Transport& transport,
                                         const MeasureOptions& options);

// Of this Weft, on such a device. `transport` may be empty: not known, CheckProfile() leaves it
// out.
ProfileFingerprint FingerprintOf(const Device& device, std::string_view transport,
                                 const Topology& topology);

}  // namespace weft
#pragma GCC visibility pop
