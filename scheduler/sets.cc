#include "scheduler/sets.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "scheduler/run_costs.h"
#include "scheduler/slots.h"

namespace weft::scheduler {
namespace {

// What two matrices must have in common to take one path side by side.
auto PathKey(const Plan& plan, const PlanMatrix& matrix) {
  return std::tuple(PathOf(plan.topology, plan.strategy, matrix), matrix.layout, matrix.rule,
                    matrix.gradient, matrix.dtype,
                    matrix.layout == Layout::kOwned ? matrix.layer : 0);
}

// And to have work in the same steps.
auto StepsKey(const Plan& plan, const PlanMatrix& matrix) {
  return std::tuple_cat(PathKey(plan, matrix), std::tuple(matrix.period, matrix.phase));
}

bool MayTravelTogether(const Plan& plan, const PlanMatrix& matrix) {
  // A shard's rows lie apart from those of the next matrix; a caller's rule has a matrix to itself.
  if (IsSharded(matrix.layout) || matrix.rule == RuleKind::kCustom) return false;
  const PathKind path = PathOf(plan.topology, plan.strategy, matrix);
  if (path == PathKind::kLayerwise) return false;  // by exchanges
  const bool reduces = matrix.gradient == GradientKind::kLocal;
  return HasOwner(path) || (path != PathKind::kLocal && reduces);
}

// Alone a matrix is no set. `set_of` is what tells a matrix of it.
void AddSet(Plan& plan, std::int32_t PlanMatrix::*set_of, std::vector<std::int32_t> matrices) {
  if (matrices.size() < 2) return;
  for (const std::int32_t m : matrices) {
    plan.matrices[m].*set_of = static_cast<std::int32_t>(plan.sets.size());
  }
  plan.sets.push_back(std::move(matrices));
}

// The sizes of the batches in which `count` matrices of a table cost least, and what they cost.
struct Runs {
  std::vector<int> sizes;
  double cost = 0;
};
Runs CheapestRuns(const std::vector<double>& batch_costs, int count) {
  AssignmentProblem problem;
  problem.classes.push_back({.batch_costs = batch_costs});
  problem.class_of.assign(count, 0);
  const RunCosts costs(problem);
  return {costs.Batches(0, count), costs.Of(0, count)};
}

}  // namespace

absl::Span<const std::int32_t> TravelsWith(const Plan& plan, const std::int32_t& m) {
  const std::int32_t bucket = plan.matrices[m].bucket;
  return bucket >= 0 ? absl::MakeConstSpan(plan.sets[bucket]) : absl::MakeConstSpan(&m, 1);
}

std::vector<std::int32_t> Travellers(const Plan& plan) {
  std::vector<std::int32_t> travellers;
  for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
    const auto m = static_cast<std::int32_t>(i);
    const std::int32_t bucket = plan.matrices[m].bucket;
    if (bucket < 0 || plan.sets[bucket][0] == m) travellers.push_back(m);
  }
  return travellers;
}

void FormBuckets(Plan& plan, const OwnershipOptions& options) {
  if (plan.limits.bucket_bytes == 0) return;
  std::map<std::pair<std::int32_t, std::int32_t>, double> flops_of_steps;
  for (const PlanMatrix& matrix : plan.matrices) {
    flops_of_steps[{matrix.period, matrix.phase}] += matrix.flops;
  }
  struct Bucket {
    std::vector<std::int32_t> matrices;
    std::int64_t bytes = 0;
    double flops = 0;
  };
  std::map<std::pair<decltype(StepsKey(plan, plan.matrices[0])), std::int32_t>, Bucket> open;
  std::vector<std::vector<std::int32_t>> full;
  for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
    const auto m = static_cast<std::int32_t>(i);
    const PlanMatrix& matrix = plan.matrices[m];
    if (!MayTravelTogether(plan, matrix)) continue;
    const std::int64_t bytes =
        matrix.rows * matrix.cols * static_cast<std::int64_t>(SizeOf(matrix.dtype));
    if (bytes > plan.limits.bucket_bytes) continue;
    Bucket& bucket =
        open[{StepsKey(plan, matrix), options.owners.empty() ? -1 : options.owners[m]}];
    const bool owned = GetsOwner(plan.topology.grid, plan.strategy, matrix);
    // Loads of an eighth of the mean still pack well.
    const double most_flops = flops_of_steps[{matrix.period, matrix.phase}] /
                              OwnerChoices(plan.topology.grid, plan.strategy) / 8;
    if (bucket.bytes + bytes > plan.limits.bucket_bytes ||
        (owned && bucket.flops + matrix.flops > most_flops)) {
      full.push_back(std::move(bucket.matrices));
      bucket = {};
    }
    bucket.matrices.push_back(m);
    bucket.bytes += bytes;
    bucket.flops += matrix.flops;
  }
  for (auto& [key, bucket] : open) full.push_back(std::move(bucket.matrices));
  for (std::vector<std::int32_t>& matrices : full) {
    AddSet(plan, &PlanMatrix::bucket, std::move(matrices));
  }
}

void FormExchanges(Plan& plan) {
  struct Exchange {
    std::vector<std::int32_t> matrices;
    std::int64_t bytes = 0;
  };
  std::map<decltype(PathKey(plan, plan.matrices[0])), Exchange> open;
  std::vector<std::vector<std::int32_t>> full;
  for (std::size_t i = plan.matrices.size(); i-- > 0;) {
    const PlanMatrix& matrix = plan.matrices[i];
    const PathKind path = PathOf(plan.topology, plan.strategy, matrix);
    if (path != PathKind::kLayerwise || matrix.rule != RuleKind::kMuon) continue;
    const std::int64_t bytes =
        matrix.rows * matrix.cols * static_cast<std::int64_t>(SizeOf(matrix.dtype));
    if (plan.limits.exchange_bytes == 0 || bytes > plan.limits.exchange_bytes) continue;
    Exchange& exchange = open[PathKey(plan, matrix)];
    if (exchange.bytes + bytes > plan.limits.exchange_bytes) {
      full.push_back(std::move(exchange.matrices));
      exchange = {};
    }
    exchange.matrices.push_back(static_cast<std::int32_t>(i));
    exchange.bytes += bytes;
  }
  for (auto& [key, exchange] : open) full.push_back(std::move(exchange.matrices));
  for (std::vector<std::int32_t>& matrices : full) {
    std::sort(matrices.begin(), matrices.end(), [&](std::int32_t a, std::int32_t b) {
      return std::pair(plan.matrices[a].owner, a) < std::pair(plan.matrices[b].owner, b);
    });
    AddSet(plan, &PlanMatrix::exchange, std::move(matrices));
  }
}

void FormBatches(Plan& plan, const OwnershipOptions& options) {
  if (options.batch_costs.empty()) return;
  using Key = std::tuple<decltype(StepsKey(plan, plan.matrices[0])), std::int32_t, std::int32_t,
                         std::int32_t, std::int32_t, std::int64_t, std::int64_t>;
  std::map<Key, std::vector<std::int32_t>> alike;
  for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
    const auto m = static_cast<std::int32_t>(i);
    const PlanMatrix& matrix = plan.matrices[m];
    const PathKind path = PathOf(plan.topology, plan.strategy, matrix);
    // Under gather a batch would have to be gathered whole before its first matrix runs.
    if (matrix.rule != RuleKind::kMuon || StateOnShards(path)) continue;
    const std::int32_t table = options.matrix_table[m];
    if (table < 0 || table >= static_cast<std::int32_t>(options.batch_costs.size())) continue;
    alike[{StepsKey(plan, matrix), matrix.bucket, matrix.owner, table, matrix.ns_run, matrix.rows,
           matrix.cols}]
        .push_back(m);
  }
  for (const auto& [key, matrices] : alike) {
    auto next = matrices.begin();
    for (const int size :
         CheapestRuns(options.batch_costs[std::get<3>(key)], static_cast<int>(matrices.size()))
             .sizes) {
      AddSet(plan, &PlanMatrix::batch, {next, next + size});
      next += size;
    }
  }
}

void FormNormSets(Plan& plan) {
  std::map<std::tuple<Layout, std::int32_t, std::int32_t>, std::vector<std::int32_t>> alike;
  for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
    const auto m = static_cast<std::int32_t>(i);
    const PlanMatrix& matrix = plan.matrices[m];
    // Elsewhere what a norm is taken over lies on one rank.
    const PathKind path = PathOf(plan.topology, plan.strategy, matrix);
    if (matrix.norm_vectors == 0 || !StateOnShards(path)) continue;
    alike[{matrix.layout, matrix.period, matrix.phase}].push_back(m);
  }
  for (auto& [steps, matrices] : alike) {
    AddSet(plan, &PlanMatrix::norm_set, std::move(matrices));
  }
}

double CostOfTraveller(const Plan& plan, const OwnershipOptions& options, std::int32_t m) {
  std::map<std::int32_t, int> counts;  // by table
  double cost = 0;
  for (std::int32_t each : TravelsWith(plan, m)) {
    if (options.batch_costs.empty()) {
      cost += plan.matrices[each].flops;
    } else {
      ++counts[options.matrix_table[each]];
    }
  }
  for (const auto& [table, count] : counts) {
    cost += CheapestRuns(options.batch_costs[table], count).cost;
  }
  return cost;
}

}  // namespace weft::scheduler
