// What has been registered: checks it, turns it into a plan request, and describes it so that ranks
// can compare.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/cost_model.h"
#include "weft/plan.h"
#include "weft/runtime.h"

namespace weft::runtime {

// InvalidArgument names the option.
absl::Status CheckOptions(const RuntimeOptions& options);

// InvalidArgument names the matrix. `rank` whose weight must be there, or -1 for none. Does not
// look for duplicates.
absl::Status CheckSpec(const MatrixSpec& spec, const ProcessGrid& grid, int rank);

// Which memory the weights registered so far take, by its begin.
struct ClaimedWeight {
  std::uintptr_t end;
  std::string name;
};
using ClaimedWeights = std::map<std::uintptr_t, ClaimedWeight>;

// Adds this rank's weight of a checked and completed spec. InvalidArgument, adding nothing, names
// both matrices where it overlaps another's: two updates would write to the same place.
absl::Status ClaimWeight(const MatrixSpec& spec, int rank, ClaimedWeights& claimed);

// Fills shard_rows of a spec with shards that leaves them out.
void CompleteSpec(MatrixSpec& spec, const ProcessGrid& grid);

// Rows of the weight that a rank holds, of a completed spec that is not owned.
std::int64_t HeldRows(const MatrixSpec& spec, int rank);

// All that a runtime would be given, checked as Create() and AddMatrix() do, completed. Weights may
// be null.
absl::StatusOr<std::vector<MatrixSpec>> CheckRegistration(const std::vector<MatrixSpec>& matrices,
                                                          const RuntimeOptions& options);

// What the options say that things cost.
CostModel ModelOf(const RuntimeOptions& options);

// Requires checked and completed specs.
absl::StatusOr<PlanRequest> MakePlanRequest(const std::vector<MatrixSpec>& specs,
                                            const RuntimeOptions& options);

// Everything that must be equal on all ranks, one line per item: the options, then each matrix. A
// line is what it is about, then fields "name=value", between tabs. `request` is what
// MakePlanRequest() made of them, or null where it failed.
std::vector<std::string> Manifest(const std::vector<MatrixSpec>& specs,
                                  const RuntimeOptions& options, const PlanRequest* request);

// Compares all ranks' manifests (lines joined by '\n', in rank order). InvalidArgument names the
// first field that differs, with rank 0's and the first differing rank's value.
absl::Status CompareManifests(const std::vector<std::string>& manifests);

// What the results of a spec's rule depend on besides rates, "name=value" in the spelling of the
// options.
std::vector<std::string> RuleOptions(const MatrixSpec& spec);

// What a job's rates are until it sets others.
double DefaultLr(const Rule& rule);
double DefaultWeightDecay(const Rule& rule);

}  // namespace weft::runtime
