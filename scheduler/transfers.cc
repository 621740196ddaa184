#include "scheduler/transfers.h"

#include <algorithm>

#include "base/link_cost.h"
#include "scheduler/access.h"
#include "scheduler/collective_pattern.h"

namespace weft::scheduler {

Transfers::Transfers(const Plan& plan, const CostModel& model)
    : plan_(plan), model_(model), resources_(SharedResources(model.topology())) {}

const Transfers::Crossing& Transfers::CrossingOf(std::int32_t group, int part) {
  const auto [place, is_new] = crossings_.try_emplace({group, part});
  Crossing& crossing = place->second;
  if (!is_new) return crossing;
  const ProcessGrid& grid = model_.topology().grid;
  const std::vector<int>& members = plan_.groups[group].parts[part];
  std::vector<int> members_on(grid.nodes, 0);
  for (const int rank : members) ++members_on[grid.node_of(rank)];
  const int most = *std::max_element(members_on.begin(), members_on.end());
  crossing.ranks = static_cast<int>(members.size());
  if (crossing.ranks < grid.size()) {
    if (most == crossing.ranks) crossing.group_class = GroupClass::kIntra;
    if (most == 1) crossing.group_class = GroupClass::kInter;
  }
  for (const int rank : members) {
    if (members_on[grid.node_of(rank)] > 1) crossing.ports.push_back(rank);
  }
  crossing.uses = ResourcesOf(model_.topology(), members);
  return crossing;
}

std::int64_t Transfers::BusiestBytes(const Op& op) const {
  const ProcessGrid& grid = model_.topology().grid;
  const int ranks = grid.size();
  // In gathers and scatters each rank sends to and receives from others; broadcasts go from rank to
  // rank, so that each receives what it does not own.
  const bool straight = op.kind == OpKind::kGather || op.kind == OpKind::kScatter;
  std::vector<std::int64_t> sent(ranks), received(ranks);
  std::vector<std::int64_t> left(resources_.size()), entered(resources_.size());
  std::vector<int> nic_of(ranks, -1);
  for (std::size_t i = 0; i < resources_.size(); ++i) {
    if (resources_[i].kind != SharedResource::Kind::kNic) continue;
    for (const int rank : resources_[i].ranks) nic_of[rank] = static_cast<int>(i);
  }
  for (const std::int32_t m : MatricesOf(plan_, op)) {
    const PlanMatrix& matrix = plan_.matrices[m];
    const std::int64_t row_bytes =
        matrix.cols * static_cast<std::int64_t>(SizeOf(SlotType(matrix, op.source)));
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == matrix.owner) continue;
      if (!straight) {
        received[rank] += matrix.rows * row_bytes;
        continue;
      }
      const bool inwards = op.kind == OpKind::kGather;
      const int from = inwards ? rank : matrix.owner, to = inwards ? matrix.owner : rank;
      const std::int64_t bytes = matrix.shard_rows[rank] * row_bytes;
      sent[from] += bytes;
      received[to] += bytes;
      if (grid.node_of(from) == grid.node_of(to)) continue;
      left[nic_of[from]] += bytes;
      entered[nic_of[to]] += bytes;
    }
  }
  std::int64_t most = 0;
  for (const auto* list : {&sent, &received, &left, &entered}) {
    most = std::max(most, list->empty() ? 0 : *std::max_element(list->begin(), list->end()));
  }
  return most;
}

std::int32_t Transfers::Of(std::int32_t op, int part) {
  const Op& first = plan_.ops[op];
  const int rank = plan_.groups[first.group].parts[part][0];
  const Op* const second = first.with_next ? &plan_.ops[op + 1] : nullptr;
  const bool together = IsExchange(plan_, first) && first.kind != OpKind::kReduceScatter;
  const std::int64_t bytes = together ? BusiestBytes(first) : PayloadBytes(plan_, first, rank);
  constexpr std::int64_t kNone = -1, kTogether = -2;
  const std::int64_t others = second != nullptr ? PayloadBytes(plan_, *second, rank)
                              : together        ? kTogether
                                                : kNone;
  const Key key = {first.group, part, first.kind, first.form, bytes, others};
  const auto [place, is_new] =
      known_.try_emplace(key, static_cast<std::int32_t>(transfers_.size()));
  if (!is_new) return place->second;
  auto payload = static_cast<double>(bytes);
  // Of equal parts, whose ports carry as much.
  if (const double ranks = model_.topology().grid.size(); together) payload *= ranks / (ranks - 1);
  std::vector<Leg> legs = {{first.kind, payload}};
  if (second != nullptr) {
    legs.push_back({first.kind, static_cast<double>(others)});
  } else if (first.form == CollectiveForm::kSplit) {
    legs = first.kind == OpKind::kReduce
               ? std::vector<Leg>{{OpKind::kReduceScatter, payload}, {OpKind::kGather, payload}}
               : std::vector<Leg>{{OpKind::kScatter, payload}, {OpKind::kAllGather, payload}};
  }
  transfers_.push_back(Make(CrossingOf(first.group, part), legs, second != nullptr));
  return place->second;
}

Transfer Transfers::Make(const Crossing& crossing, const std::vector<Leg>& legs, bool pair) const {
  const int ranks = crossing.ranks;
  const auto alone = [&](bool with_payload) {
    double sum = 0, most = 0;
    for (const Leg& leg : legs) {
      const double bytes = with_payload ? leg.bytes : 0;
      sum += model_.Collective(leg.kind, crossing.group_class, ranks, bytes).seconds;
      most = std::max(most, bytes);
    }
    return pair ? model_.Pair(legs[0].kind, crossing.group_class, most).seconds : sum;
  };
  Transfer transfer;
  transfer.seconds = alone(true);
  transfer.latency = std::min(alone(false), transfer.seconds);
  const double carrying = transfer.seconds - transfer.latency;
  if (carrying <= 0) return transfer;
  // What passes a link with `passes` times the payload. The two of a pair go opposite ways, which
  // do not share a link unless both `pass` it.
  const auto seconds_on = [&](const Link& link, int ring_passes, bool both) {
    double sum = 0, most = 0;
    for (const Leg& leg : legs) {
      const base::Pattern pattern = PatternOf(leg.kind);
      const int passes = ring_passes > 0 ? base::RootComplexPasses(pattern, ring_passes, ranks) : 1;
      const double seconds = base::CollectiveSeconds(pattern, ranks, leg.bytes * passes,
                                                     {0, link.gigabytes_per_second});
      sum += seconds;
      most = std::max(most, seconds);
    }
    return pair && !both ? most : sum;
  };
  const auto use = [&](int link, double seconds) {
    if (seconds > 0) transfer.uses.push_back({link, std::min(1.0, seconds / carrying)});
  };
  // What takes a second carries 10^9 bytes.
  transfer.full_rate = 1e9 * seconds_on({0, 1}, 0, false) / carrying;
  bool spans = false;
  for (const ResourceUse& each : crossing.uses) {
    const SharedResource& resource = resources_[each.resource];
    const bool nic = resource.kind == SharedResource::Kind::kNic;
    spans = spans || nic;
    use(each.resource, seconds_on(resource.link, nic ? 0 : each.passes, !nic));
  }
  const auto first_port = static_cast<int>(resources_.size());
  const double on_port = seconds_on(model_.topology().intra, 0, false);
  for (const int rank : crossing.ports) use(first_port + rank, on_port);
  if (!transfer.uses.empty()) return transfer;
  // It was measured, and the topology does not say on what: it fills what it crosses.
  for (const ResourceUse& each : crossing.uses) {
    if (resources_[each.resource].kind == SharedResource::Kind::kNic) use(each.resource, carrying);
  }
  if (spans) return transfer;
  for (const int rank : crossing.ports) use(first_port + rank, carrying);
  return transfer;
}

}  // namespace weft::scheduler
