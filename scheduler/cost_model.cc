#include "weft/cost_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/link_cost.h"
#include "scheduler/collective_pattern.h"
#include "scheduler/peak_bytes.h"
#include "scheduler/slots.h"

namespace weft {
namespace {

// The short side first.
ComputeShape Oriented(ComputeShape shape) {
  if (shape.rows > shape.cols) std::swap(shape.rows, shape.cols);
  return shape;
}

double Aspect(const ComputeShape& shape) {
  return std::log(static_cast<double>(shape.cols) / static_cast<double>(shape.rows));
}

// Seconds at `batch` from measurements at others, and whether it is one of them.
std::pair<double, bool> AtBatch(const std::vector<std::pair<int, double>>& measured, int batch) {
  const auto above = std::lower_bound(measured.begin(), measured.end(), std::pair(batch, 0.0));
  if (above != measured.end() && above->first == batch) return {above->second, true};
  if (above == measured.begin() || above == measured.end()) {
    const auto& [nearest, seconds] = above == measured.end() ? measured.back() : measured.front();
    return {seconds * batch / nearest, false};
  }
  const auto& [low, low_seconds] = *std::prev(above);
  const auto& [high, high_seconds] = *above;
  const double part = static_cast<double>(batch - low) / (high - low);
  return {low_seconds + part * (high_seconds - low_seconds), false};
}

}  // namespace

std::string_view Name(CostSource source) {
  switch (source) {
    case CostSource::kMeasured:
      return "measured";
    case CostSource::kInterpolated:
      return "interpolated";
    case CostSource::kAnalytic:
      return "analytic";
  }
  return "invalid";
}

CostModel::CostModel(const Topology& topology, const AnalyticRates& rates)
    : topology_(topology),
      resources_(SharedResources(topology)),
      rates_(rates),
      described_("analytic model (no profile)") {}

CostModel::CostModel(const CostProfile& profile, const Topology& topology,
                     const AnalyticRates& rates)
    : topology_(topology), resources_(SharedResources(topology)), rates_(rates), measured_(true) {
  described_ = absl::StrCat("measured ", profile.measured_at, " on ", profile.fingerprint.device);
  std::map<ComputeShape, Measured> shapes;
  for (const ComputeSample& sample : profile.compute) {
    Measured& measured = shapes[sample.shape];
    measured.shape = sample.shape;
    measured.flops = sample.flops;
    measured.seconds_by_batch.emplace_back(sample.batch, sample.seconds);
  }
  for (auto& [shape, measured] : shapes) {
    std::sort(measured.seconds_by_batch.begin(), measured.seconds_by_batch.end());
    shapes_.push_back(std::move(measured));
  }
  for (const CollectiveCost& cost : profile.collectives) {
    collectives_[{cost.kind, cost.group}][cost.ranks] = cost.fit;
  }
}

CostModel CostModel::On(const Topology& topology) const {
  CostModel other = *this;
  other.topology_ = topology;
  other.resources_ = SharedResources(topology);
  return other;
}

std::string CostModel::Describe() const { return described_; }

const CostModel::Measured* CostModel::Find(const ComputeShape& shape) const {
  const auto it =
      std::lower_bound(shapes_.begin(), shapes_.end(), shape,
                       [](const Measured& m, const ComputeShape& s) { return m.shape < s; });
  return it != shapes_.end() && it->shape == shape ? &*it : nullptr;
}

std::optional<double> CostModel::ByFlops(const ComputeWork& work, int batch,
                                         std::optional<DType> dtype) const {
  const Measured* below = nullptr;
  const Measured* above = nullptr;
  const double aspect = Aspect(work.shape);
  const auto distance = [&](const Measured& m) { return std::abs(Aspect(m.shape) - aspect); };
  for (const Measured& m : shapes_) {
    if (m.shape.kind != work.shape.kind || (dtype && m.shape.dtype != *dtype)) continue;
    if (m.flops <= work.flops &&
        (below == nullptr ||
         std::pair(-m.flops, distance(m)) < std::pair(-below->flops, distance(*below)))) {
      below = &m;
    }
    if (m.flops >= work.flops &&
        (above == nullptr ||
         std::pair(m.flops, distance(m)) < std::pair(above->flops, distance(*above)))) {
      above = &m;
    }
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  const auto rate = [&](const Measured& m) {
    return m.flops * batch / AtBatch(m.seconds_by_batch, batch).first;
  };
  double flops_per_second = 0;
  if (below == nullptr || above == nullptr || below->flops == above->flops) {
    flops_per_second = rate(below != nullptr ? *below : *above);
  } else {
    const double part = std::log(work.flops / below->flops) / std::log(above->flops / below->flops);
    flops_per_second = rate(*below) + part * (rate(*above) - rate(*below));
  }
  return work.flops * batch / flops_per_second;
}

CostEstimate CostModel::Compute(const ComputeWork& asked, int batch) const {
  ComputeWork work = asked;
  work.shape = Oriented(work.shape);
  if (work.shape.rows <= 0) return {0, CostSource::kAnalytic};
  if (const Measured* known = Find(work.shape)) {
    const auto [seconds, exact] = AtBatch(known->seconds_by_batch, batch);
    return {seconds, exact ? CostSource::kMeasured : CostSource::kInterpolated};
  }
  // Without FLOPs there is nothing to compare by.
  if (work.flops > 0) {
    for (const std::optional<DType> dtype : {std::optional(work.shape.dtype), {}}) {
      if (const std::optional<double> seconds = ByFlops(work, batch, dtype)) {
        return {*seconds, CostSource::kInterpolated};
      }
    }
  }
  const double per_matrix =
      std::max(work.flops / rates_.flops_per_second, work.bytes / rates_.bytes_per_second);
  return {work.launches * rates_.launch_seconds + batch * per_matrix, CostSource::kAnalytic};
}

CostEstimate CostModel::Collective(OpKind kind, GroupClass group, int ranks, double bytes) const {
  if (ranks < 2) return {0, CostSource::kAnalytic};
  const base::Pattern pattern = scheduler::PatternOf(kind);
  // A verdict is an all-reduce.
  const OpKind measured_as = kind == OpKind::kVerdict ? OpKind::kAllReduce : kind;
  if (const auto it = collectives_.find({measured_as, group}); it != collectives_.end()) {
    const auto ratio = [&](int other) {
      return std::abs(std::log(static_cast<double>(other) / ranks));
    };
    auto best = it->second.begin();
    for (auto fit = it->second.begin(); fit != it->second.end(); ++fit) {
      if (ratio(fit->first) < ratio(best->first)) best = fit;
    }
    const int measured_ranks = best->first;
    const LinkFit& fit = best->second;
    if (measured_ranks == ranks) return {fit.Seconds(bytes), CostSource::kMeasured};
    // One second of latency, and one second for the payload.
    const Link latency{1e6, 0}, bandwidth{0, 1};
    const auto growth = [&](double payload, const Link& link) {
      return base::CollectiveSeconds(pattern, ranks, payload, link) /
             base::CollectiveSeconds(pattern, measured_ranks, payload, link);
    };
    const double at_zero = fit.Seconds(0);
    return {at_zero * growth(0, latency) + (fit.Seconds(bytes) - at_zero) * growth(1e9, bandwidth),
            CostSource::kInterpolated};
  }
  return {AnalyticCollective(kind, group, ranks, bytes), CostSource::kAnalytic};
}

double CostModel::AnalyticCollective(OpKind kind, GroupClass group, int ranks, double bytes) const {
  const base::Pattern pattern = scheduler::PatternOf(kind);
  const ProcessGrid& grid = topology_.grid;
  std::vector<int> members = group == GroupClass::kWorld   ? grid.World()
                             : group == GroupClass::kIntra ? grid.Intra(0)
                                                           : grid.Inter(0);
  // A larger group than there is has only links.
  if (ranks < static_cast<int>(members.size())) members.resize(ranks);
  const bool spans = group == GroupClass::kInter || (group == GroupClass::kWorld && grid.nodes > 1);
  const bool inside = group != GroupClass::kInter && grid.ranks_per_node > 1;
  double seconds = 0;
  if (spans) seconds = base::CollectiveSeconds(pattern, ranks, bytes, topology_.inter);
  if (inside || !spans) {
    seconds = std::max(seconds, base::CollectiveSeconds(pattern, ranks, bytes, topology_.intra));
  }
  if (members.size() < 2) return seconds;
  for (const ResourceUse& use : ResourcesOf(topology_, members)) {
    const SharedResource& resource = resources_[use.resource];
    if (resource.kind != SharedResource::Kind::kRootComplex) continue;
    seconds = std::max(
        seconds, base::CollectiveSeconds(
                     pattern, ranks, bytes * base::RootComplexPasses(pattern, use.passes, ranks),
                     resource.link));
  }
  return seconds;
}

CostEstimate CostModel::Pair(OpKind kind, GroupClass group, double bytes) const {
  switch (kind) {
    case OpKind::kReduce:
      return Collective(OpKind::kReduceScatter, group, 2, 2 * bytes);
    case OpKind::kBroadcast:
      return Collective(OpKind::kAllGather, group, 2, 2 * bytes);
    default:
      // Half of a gather or a scatter stays where it is.
      return Collective(OpKind::kAllGather, group, 2, bytes);
  }
}

namespace {

// The least power of two from which on `seconds(bytes)` of a way is less, by a twentieth, than that
// of the plain one; -1 where there is none.
template <typename Seconds>
std::int64_t CheaperFrom(const Seconds& plain, const Seconds& other) {
  constexpr double kGain = 0.95;
  std::int64_t from = -1;
  for (int power = 40; power >= 0; --power) {
    const double bytes = std::ldexp(1.0, power);
    // Where nothing costs anything nothing is gained.
    if (plain(bytes) <= 0 || other(bytes) > kGain * plain(bytes)) break;
    from = std::int64_t{1} << power;
  }
  return from;
}

}  // namespace

FormChoices ChooseForms(const CostModel& model) {
  const ProcessGrid& grid = model.topology().grid;
  const std::array<int, kGroupClassCount> ranks = {grid.size(), grid.ranks_per_node, grid.nodes};
  using Seconds = std::function<double(double)>;
  FormChoices choices;
  for (int g = 0; g < kGroupClassCount; ++g) {
    if (ranks[g] < 2) continue;
    const auto group = static_cast<GroupClass>(g);
    const auto one = [&](OpKind kind) -> Seconds {
      return [&model, group, kind, members = ranks[g]](double bytes) {
        return model.Collective(kind, group, members, bytes).seconds;
      };
    };
    const auto split_from = [&](OpKind direct, OpKind part, OpKind whole) {
      return CheaperFrom<Seconds>(one(direct),
                                  [first = one(part), second = one(whole)](double bytes) {
                                    return first(bytes) + second(bytes);
                                  });
    };
    choices.reduce_split_from[g] =
        split_from(OpKind::kReduce, OpKind::kReduceScatter, OpKind::kGather);
    choices.broadcast_split_from[g] =
        split_from(OpKind::kBroadcast, OpKind::kScatter, OpKind::kAllGather);
    if (ranks[g] > 2) continue;
    std::int64_t& pair_from = choices.pair_from[g] = 1;
    for (const OpKind kind :
         {OpKind::kReduce, OpKind::kBroadcast, OpKind::kGather, OpKind::kScatter}) {
      const std::int64_t from = CheaperFrom<Seconds>(
          [single = one(kind)](double bytes) { return 2 * single(bytes); },
          [&](double bytes) { return model.Pair(kind, group, bytes).seconds; });
      pair_from = from < 0 || pair_from < 0 ? -1 : std::max(pair_from, from);
    }
  }
  return choices;
}

BatchTables MakeBatchTables(const CostModel& model,
                            absl::Span<const std::optional<OwnedWork>> matrices) {
  BatchTables tables;
  using Key = std::tuple<ComputeShape, double, double, int, bool, int>;
  std::map<Key, std::int32_t> known;
  for (const std::optional<OwnedWork>& matrix : matrices) {
    if (!matrix) {
      tables.matrix_table.push_back(-1);
      continue;
    }
    const ComputeWork& work = matrix->work;
    const auto [place, is_new] =
        known.emplace(Key{Oriented(work.shape), work.flops, work.bytes, work.launches,
                          matrix->batches, matrix->parts},
                      static_cast<std::int32_t>(tables.batch_costs.size()));
    tables.matrix_table.push_back(place->second);
    if (!is_new) continue;
    std::vector<double> costs;
    costs.push_back(model.Compute(work, matrix->parts).seconds);
    for (int batch = 2; matrix->batches && batch <= kLargestBatch; ++batch) {
      const double seconds = model.Compute(work, batch * matrix->parts).seconds;
      // A batch that hardly pays is priced so that no assignment takes it.
      const double apart = batch * costs[0];
      costs.push_back(seconds <= (1 - kLeastGain) * apart ? seconds : 2 * apart);
    }
    const CostSource source = model.Compute(work, matrix->parts).source;
    tables.batch_costs.push_back(std::move(costs));
    tables.table_source.push_back(source);
    tables.source = std::max(tables.source, source);
  }
  return tables;
}

namespace {

// Of one matrix in the cheapest of the batches that `alike` matrices can form.
double SecondsInBatches(const CostModel& model, const OwnedWork& work, int alike) {
  const std::optional<OwnedWork> asked = work;
  const std::vector<double> costs = MakeBatchTables(model, {&asked, 1}).batch_costs[0];
  double seconds = costs[0];
  for (int batch = 2; batch <= std::min(alike, static_cast<int>(costs.size())); ++batch) {
    seconds = std::min(seconds, costs[batch - 1] / batch);
  }
  return seconds;
}

// Part of a matrix that the node with the most of its rows holds.
double LargestNodePart(const ProcessGrid& grid, const PlanMatrix& matrix) {
  if (matrix.rows == 0) return 0;
  std::int64_t most = 0;
  for (int node = 0; node < grid.nodes; ++node) {
    most = std::max(most, scheduler::NodeRows(grid, matrix, node));
  }
  return static_cast<double>(most) / static_cast<double>(matrix.rows);
}

// Part of a matrix that the rank with the most of its rows holds.
double LargestShardPart(const PlanMatrix& matrix) {
  if (matrix.rows == 0) return 0;
  const auto most = std::max_element(matrix.shard_rows.begin(), matrix.shard_rows.end());
  return static_cast<double>(*most) / static_cast<double>(matrix.rows);
}

}  // namespace

PassThroughCosts ComparePassThrough(const CostModel& model, const PlanMatrix& asked,
                                    const OwnedWork& work, const Company& company) {
  const ProcessGrid& grid = model.topology().grid;
  PlanMatrix matrix = asked;
  scheduler::Simplify(grid, matrix);
  const bool sharded = scheduler::IsSharded(matrix.layout);
  const bool replicas = scheduler::HasReplicas(matrix);
  if (sharded && matrix.shard_rows.empty()) {
    matrix.shard_rows = DefaultShardRows(matrix.rows, scheduler::ShardCount(grid, matrix.layout));
  }
  const bool local = matrix.gradient == GradientKind::kLocal;
  const bool reduces = matrix.gradient != GradientKind::kReduced;
  const bool custom = matrix.rule == RuleKind::kCustom;
  const double elements = static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  const double stored = elements * static_cast<double>(SizeOf(matrix.dtype));
  // What travels of a custom rule's shards is the weight, else an fp32 update or direction.
  const double result = custom || !sharded ? stored : 4 * elements;
  // Shards travel alone.
  const double fellows = sharded || stored == 0 ? 1 : std::max(1.0, company.bucket_bytes / stored);
  const auto on = [&](OpKind kind, GroupClass group, int ranks, double bytes) {
    return model.Collective(kind, group, ranks, fellows * bytes).seconds / fellows;
  };
  const auto world = [&](OpKind kind, double bytes) {
    return on(kind, GroupClass::kWorld, grid.size(), bytes);
  };
  const auto one_way = [&](OpKind kind, GroupClass group, int ranks, double bytes) {
    const std::int64_t pair_from = company.forms.pair_from[static_cast<std::size_t>(group)];
    const bool paired =
        ranks == 2 && pair_from >= 0 && fellows * bytes >= static_cast<double>(pair_from);
    if (!paired) return on(kind, group, ranks, bytes);
    return model.Pair(kind, group, fellows * bytes).seconds / fellows / 2;
  };
  const double node_part = sharded ? LargestNodePart(grid, matrix) : 1;
  const double shard_part = replicas ? LargestShardPart(matrix) : 1;
  const auto rooted = [&](OpKind kind, double bytes) {
    if (!scheduler::TwoLevel(grid)) return one_way(kind, GroupClass::kWorld, grid.size(), bytes);
    if (replicas && kind != OpKind::kReduce) {
      double seconds = one_way(kind, GroupClass::kIntra, grid.ranks_per_node, bytes);
      if (kind == OpKind::kScatter) {
        seconds += one_way(OpKind::kBroadcast, GroupClass::kInter, grid.nodes, shard_part * bytes);
      }
      return seconds;
    }
    const double in_node =
        kind == OpKind::kGather || kind == OpKind::kScatter ? node_part * bytes : bytes;
    return one_way(kind, GroupClass::kIntra, grid.ranks_per_node, in_node) +
           one_way(kind, GroupClass::kInter, grid.nodes, bytes);
  };
  const auto over_shards = [&](OpKind kind, double bytes) {
    return replicas ? on(kind, GroupClass::kIntra, grid.ranks_per_node, bytes) : world(kind, bytes);
  };
  PassThroughCosts costs;
  double& owner = costs.owner.collectives;
  double& passed = costs.pass_through.collectives;
  if (local) {
    owner += company.reductions * rooted(OpKind::kReduce, stored);
    passed += company.reductions * (sharded ? over_shards(OpKind::kReduceScatter, stored)
                                            : world(OpKind::kAllReduce, stored));
  } else if (sharded) {
    owner += (reduces ? company.reductions : 1) * rooted(OpKind::kGather, stored);
  }
  if (reduces && replicas) {
    const double bytes = shard_part * stored;
    if (!local) {
      owner += company.reductions * one_way(OpKind::kReduce, GroupClass::kInter, grid.nodes, bytes);
    }
    passed += company.reductions * on(OpKind::kAllReduce, GroupClass::kInter, grid.nodes, bytes);
  }
  if (sharded) {
    if (custom) {
      owner += rooted(OpKind::kGather, stored);
      passed += over_shards(OpKind::kAllGather, stored);
    }
    owner += rooted(OpKind::kScatter, result);
    passed += over_shards(OpKind::kAllGather, result);
  } else {
    owner += rooted(OpKind::kBroadcast, result);
  }
  const double in_batches = SecondsInBatches(model, work, company.alike);
  costs.owner.compute = in_batches / grid.size();
  // Gathered matrices run one by one.
  costs.pass_through.compute = sharded ? model.Compute(work.work, work.parts).seconds : in_batches;
  matrix.bucket = fellows > 1 ? 0 : -1;
  const auto peak = [&](scheduler::PathKind path) {
    return scheduler::PeakBytesOn(grid, grid.size() == 1 ? scheduler::PathKind::kLocal : path,
                                  matrix, reduces ? company.reductions : 1);
  };
  costs.owner.peak_bytes = peak(scheduler::PathKind::kOwner);
  costs.pass_through.peak_bytes =
      peak(sharded ? scheduler::PathKind::kGather : scheduler::PathKind::kReplicated);
  return costs;
}

std::vector<double> OwnerSeconds(const Plan& plan, const BatchTables& tables) {
  std::vector<double> seconds(plan.topology.grid.size(), 0);
  std::map<std::pair<std::int32_t, std::int32_t>, int> owned;  // by rank and table
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    const std::int32_t owner = plan.matrices[m].owner, table = tables.matrix_table[m];
    if (owner < 0 || table < 0) continue;
    const scheduler::SlotExtents extents(plan, static_cast<std::int32_t>(m));
    for (int rank = 0; rank < plan.topology.grid.size(); ++rank) {
      if (extents.IsOwner(rank)) ++owned[{rank, table}];
    }
  }
  for (const auto& [key, count] : owned) {
    const std::vector<double>& batch = tables.batch_costs[key.second];
    std::vector<double> cheapest(count + 1, 0.0);
    for (int left = 1; left <= count; ++left) {
      cheapest[left] = std::numeric_limits<double>::infinity();
      for (int b = 1; b <= std::min(left, static_cast<int>(batch.size())); ++b) {
        cheapest[left] = std::min(cheapest[left], cheapest[left - b] + batch[b - 1]);
      }
    }
    seconds[key.first] += cheapest[count];
  }
  return seconds;
}

}  // namespace weft
