// Seconds of compute and of collectives: from a profile as far as it goes, else from a model. Every
// answer says which. Pure and deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "weft/cost_profile.h"
#include "weft/ownership.h"
#include "weft/plan.h"
#include "weft/topology.h"

#pragma GCC visibility push(default)
namespace weft {

// From the best to the weakest.
enum class CostSource : std::uint8_t {
  kMeasured,      // a measurement of exactly this; for collectives, the fit of this kind and group
  kInterpolated,  // measurements of other batches, shapes or group sizes
  kAnalytic,      // nothing measured
};
std::string_view Name(CostSource source);

struct CostEstimate {
  double seconds = 0;
  CostSource source = CostSource::kAnalytic;
};

// What one matrix asks of the compute lane. Its shape may lie either way.
struct ComputeWork {
  ComputeShape shape;
  double flops = 0;  // executed
  double bytes = 0;  // of memory traffic, where that bounds the time; 0 = no bound
  int launches = 0;  // kernels of one run, whatever the batch
};

// A data-centre GPU in round figures. Only where nothing is measured, and then only ratios count.
struct AnalyticRates {
  double flops_per_second = 300e12;
  double bytes_per_second = 2e12;
  double launch_seconds = 5e-6;
};

class CostModel {
 public:
  // Analytic only.
  explicit CostModel(const Topology& topology, const AnalyticRates& rates = {});
  // The profile's numbers are used as they are: CheckProfile() is the caller's to call. `topology`
  // is the one that is planned for; its links serve where the profile has no collective.
  CostModel(const CostProfile& profile, const Topology& topology, const AnalyticRates& rates = {});

  // The same for another topology.
  CostModel On(const Topology& topology) const;

  // One run of `batch` >= 1 matrices. The first that applies:
  //  1. measured: this kind, shape, dtype, recipe and batch;
  //  2. the same at other batches: linear between the nearest two, in proportion to the batch
  //     outside them;
  //  3. other shapes of this kind and dtype, at this batch by 1 and 2: the FLOPs over a rate that
  //     is linear in log(FLOPs of one matrix) between the nearest below and the nearest above, and
  //     that of the nearest outside. Of shapes with equal FLOPs the one nearest in cols / rows;
  //  4. the same among all dtypes of this kind;
  //  5. analytic: launches * launch_seconds + batch * max(flops / rate, bytes / rate).
  // 0 for matrices without elements.
  CostEstimate Compute(const ComputeWork& work, int batch) const;

  // One collective of `ranks` members with a payload of `bytes` as Op::bytes. The first that
  // applies: the fit for this kind, class and number of ranks; that for another number, scaled by
  // what the alpha-beta model (base/link_cost.h) gives for the two (the nearest by ratio, the
  // smaller of two); the alpha-beta model over the topology's links and root complexes, of all that
  // the group's first `ranks` members use the slowest, alone (docs/topology.md). 0 for fewer than
  // two ranks.
  CostEstimate Collective(OpKind kind, GroupClass group, int ranks, double bytes) const;

  // Two collectives with a root, of `bytes` each, that go opposite ways in a group of two and run
  // as one: by Collective(), of reduce-scatter or all-gather, which move as much each way.
  CostEstimate Pair(OpKind kind, GroupClass group, double bytes) const;

  // Whether there is a profile.
  bool measured() const { return measured_; }
  const Topology& topology() const { return topology_; }
  // "measured 2026-11-30T12:00:00Z on AMD EPYC, 2 CPUs" or "analytic model (no profile)".
  std::string Describe() const;

 private:
  struct Measured {
    ComputeShape shape;
    double flops = 0;
    std::vector<std::pair<int, double>> seconds_by_batch;  // ascending
  };
  const Measured* Find(const ComputeShape& shape) const;
  // Rule 3 among measured shapes of the kind, and of the dtype where given.
  std::optional<double> ByFlops(const ComputeWork& work, int batch,
                                std::optional<DType> dtype) const;

  double AnalyticCollective(OpKind kind, GroupClass group, int ranks, double bytes) const;

  Topology topology_;
  std::vector<SharedResource> resources_;
  AnalyticRates rates_;
  bool measured_ = false;
  std::string described_;
  std::vector<Measured> shapes_;  // ascending
  std::map<std::pair<OpKind, GroupClass>, std::map<int, LinkFit>> collectives_;
};

// From which payload on each class of groups of `model`'s topology the split form is cheaper than
// one collective, and, of two members, a pair than its two one by one: by a twentieth or more, for
// this and every larger payload (up to 2^40 bytes; powers of two are looked at). Never for groups
// of one.
FormChoices ChooseForms(const CostModel& model);

// Batches beyond this are not offered to owner assignment: their workspace grows with the batch,
// and what they still save shrinks with it.
inline constexpr int kLargestBatch = 8;
// Nor are those that save less than this part of the time: a batch publishes its first matrix only
// with its last.
inline constexpr double kLeastGain = 0.1;

// What owner assignment is told of one matrix; `batches` is false where it never shares a batch
// with other matrices. `parts` >= 1 of `work` are one run of it, as a batch.
struct OwnedWork {
  ComputeWork work;
  bool batches = true;
  int parts = 1;
};

struct BatchTables {
  // For OwnershipOptions: seconds; one table per different work, in order of first use.
  std::vector<std::vector<double>> batch_costs;
  std::vector<std::int32_t> matrix_table;
  // Where a table's cost of one matrix alone comes from (costs of batches between measured ones are
  // interpolated), and the weakest of all.
  std::vector<CostSource> table_source;
  CostSource source = CostSource::kMeasured;
};

// One entry of matrix_table per entry of `matrices`, which go by PlanRequest::matrices; nothing for
// a matrix that gets no owner (its entry is -1). Tables go up to kLargestBatch.
BatchTables MakeBatchTables(const CostModel& model,
                            absl::Span<const std::optional<OwnedWork>> matrices);

// What one matrix adds to a step on one of its paths, each part alone.
struct PathCost {
  double collectives = 0;       // seconds
  double compute = 0;           // seconds
  std::int64_t peak_bytes = 0;  // as PlanMatrix::alternative_peak_bytes
  double Seconds() const { return collectives + compute; }
};

// Strategy owner, for a matrix that is not owned: with an owner, and passed through
// (PlanMatrix::pass_through).
struct PassThroughCosts {
  PathCost owner;
  PathCost pass_through;
  // Not where collectives cost nothing, or nothing is known of them.
  bool Pays() const { return owner.collectives > 0 && pass_through.Seconds() <= owner.Seconds(); }
};

// Who shares a matrix's launches and latencies.
struct Company {
  // Bytes that a collective carries for it and the others of its bucket; less than its own: alone.
  double bucket_bytes = 0;
  // Matrices of its work, itself included: they run in the batches that MakeBatchTables() offers.
  int alike = 1;
  // How often a step reduces the gradient, where that is local.
  int reductions = 1;
  // The plan's: where they have pairs, an owner's collective in a group of two counts as half of
  // one.
  FormChoices forms;
};

// The collectives are those of its path (docs/plan.md, "Paths"), one after another, a bucket's at
// the matrix's share of the bytes; the owner's compute is spread over all ranks, since each owns
// its part of the model, the other is run on every rank. Element-wise and owned matrices have no
// choice and are not to be asked for.
PassThroughCosts ComparePassThrough(const CostModel& model, const PlanMatrix& matrix,
                                    const OwnedWork& work, const Company& company = {});

// By rank: the seconds that the matrices it owns take by the tables, in the cheapest batches.
// Matrices without an owner count nowhere.
std::vector<double> OwnerSeconds(const Plan& plan, const BatchTables& tables);

}  // namespace weft
#pragma GCC visibility pop
