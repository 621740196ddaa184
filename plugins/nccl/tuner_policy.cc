#include "plugins/nccl/tuner_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::nccl_plugin {
namespace {

// NCCL looks for the cheapest entry below an hour, in us.
constexpr float kNeverChosen = 3.6e9f;

bool Offered(float cost) { return cost >= 0 && cost < 0.5f * kNeverChosen; }  // false for NaN

// LL128 needs links within a node that store 128 bytes as one, which PCIe does not promise: NCCL
// offers it to a ring through several GPUs of one node only over NVLink.
bool HasNvlink(const Communicator& comm, const float ring[kProtocols]) {
  return comm.nvlink_spans_nodes || (comm.ranks > comm.nodes && Offered(ring[kLl128]));
}

// Which of a hop's two latencies NCCL counts for Broadcast and Reduce.
int Row(int protocol) { return protocol == kSimple ? 0 : 1; }

// NCCL's latency of a ring's Broadcast or Reduce. It counts one hop where all channels have the
// ranks in one order, otherwise as many as there are ranks; over several nodes all of them as the
// network's.
double NcclLatency(const Communicator& comm, int protocol, bool same_channels) {
  const HardwareLink link = comm.nodes == 1 ? kPci : kNet;
  if (same_channels) return comm.base[protocol] + comm.hop[link][1][protocol];
  return comm.base[protocol] +
         static_cast<double>(comm.ranks) * comm.hop[link][Row(protocol)][protocol];
}

// The same constants, each hop counted by the link it takes, as NCCL does for AllGather. One rank
// per node hides no network latency behind another hop, for which NCCL takes the tree's constants.
double Latency(const Communicator& comm, int protocol) {
  const auto ranks = static_cast<double>(comm.ranks), nodes = static_cast<double>(comm.nodes);
  const double near = comm.hop[kPci][Row(protocol)][protocol];
  if (comm.nodes == 1) return comm.base[protocol] + ranks * near;
  const int far_row = comm.ranks == comm.nodes ? 0 : Row(protocol);
  return comm.base[protocol] + nodes * comm.hop[kNet][far_row][protocol] + (ranks - nodes) * near;
}

// The time on the links that NCCL put into a cost, in us.
double LinkTime(const Communicator& comm, int protocol, bool same_channels, double pipe_ops,
                float cost) {
  return cost - pipe_ops * NcclLatency(comm, protocol, same_channels);
}

// Whether the costs of LL and Simple are NCCL's formula for PCIe: LL takes twice as long on the
// links.
bool Understood(const Communicator& comm, bool same_channels, double pipe_ops,
                const float ring[kProtocols]) {
  const double ll = LinkTime(comm, kLl, same_channels, pipe_ops, ring[kLl]);
  const double simple = LinkTime(comm, kSimple, same_channels, pipe_ops, ring[kSimple]);
  const double rounding = 1e-6 * (ring[kLl] + 2.0 * ring[kSimple]);
  return simple > rounding && std::abs(ll - 2 * simple) <= 2 * rounding;
}

// Channels that carry all that the links do, at least two: PCIe-only nodes build two to four. Small
// operations get fewer, by the larger of NCCL's own two thresholds (4096 bytes per rank for LL, 32
// KiB for Simple), so never more than NCCL would take.
int DerivedChannels(const Communicator& comm, std::size_t bytes, double simple_link_us) {
  const double gbps = 1e-3 * static_cast<double>(bytes) / simple_link_us;
  if (!(comm.channel_gbps > 0) || !(gbps < 1000)) return 0;
  // Costs are floats: those of small operations hold the bandwidth only so well.
  const double rounded = std::round(2 * gbps) / 2;
  const double needed = std::clamp(std::ceil(rounded / comm.channel_gbps), 2.0, 64.0);
  const double per_channel = std::max(4096.0 * static_cast<double>(comm.ranks), 32768.0);
  const double grown = std::floor(static_cast<double>(bytes) / per_channel);
  return static_cast<int>(std::clamp(grown, 1.0, needed));
}

// The index of the cheapest cost, the first of equal ones, as NCCL chooses.
int Cheapest(const double cost[kProtocols]) {
  return static_cast<int>(std::min_element(cost, cost + kProtocols) - cost);
}

Advice Derived(const Communicator& comm, std::size_t bytes, int pipe_ops,
               const float ring[kProtocols]) {
  if (comm.ranks < 2 || comm.nodes < 1 || comm.nodes > comm.ranks) return {};
  if (bytes == 0 || pipe_ops < 1 || !Offered(ring[kLl]) || !Offered(ring[kSimple])) return {};
  // Both hold where the latency is lost in the rounding of a large cost; then it does not matter
  // either.
  const bool same = Understood(comm, true, pipe_ops, ring);
  if (!same && !Understood(comm, false, pipe_ops, ring)) return {};

  Advice advice;
  advice.channels =
      DerivedChannels(comm, bytes, LinkTime(comm, kSimple, same, pipe_ops, ring[kSimple]));
  double before[kProtocols], after[kProtocols];
  for (int p = 0; p < kProtocols; ++p) {
    before[p] = after[p] = std::numeric_limits<double>::infinity();
    if (!Offered(ring[p])) continue;
    before[p] = ring[p];
    after[p] = ring[p] + pipe_ops * (Latency(comm, p) - NcclLatency(comm, p, same));
  }
  if (Cheapest(after) != Cheapest(before)) advice.protocol = Cheapest(after);
  return advice;
}

bool Holds(const Rule& rule, const Communicator& comm, int function, std::size_t bytes,
           bool has_nvlink) {
  return (function == kReduce ? rule.reduce : rule.broadcast) && (rule.nvlink || !has_nvlink) &&
         rule.ranks.Holds(comm.ranks) && rule.nodes.Holds(comm.nodes) && rule.bytes.Holds(bytes);
}

}  // namespace

Communicator WithDefaultConstants(std::size_t ranks, std::size_t nodes) {
  return {.ranks = ranks,
          .nodes = nodes,
          .base = {6.6, 14.0, 8.4},
          .hop = {{{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}},
                  {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}},
                  {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}}},
          .channel_gbps = 20.0};
}

Communicator WithConstants(std::size_t ranks, std::size_t nodes, const NvlDomainsV5* domains,
                           const TunerConstantsV5* constants) {
  Communicator comm = WithDefaultConstants(ranks, nodes);
  // 2.28.9 counts a domain per node, NVLink or not: only fewer domains than nodes say something.
  comm.nvlink_spans_nodes = domains != nullptr && domains->domains > 0 &&
                            static_cast<std::size_t>(domains->domains) < nodes;
  if (constants == nullptr) return comm;
  for (int p = 0; p < kProtocols; ++p) {
    comm.base[p] = constants->base_latency[kRing][p];
    for (int link = 0; link < kHardwareLinks; ++link) {
      for (int row = 0; row < 2; ++row)
        comm.hop[link][row][p] = constants->link_latency[link][row][p];
    }
  }
  comm.channel_gbps = std::numeric_limits<double>::infinity();
  for (const auto& capability : constants->channel_ring_ll128) {
    for (const double gbps : capability) comm.channel_gbps = std::min(comm.channel_gbps, gbps);
  }
  return comm;
}

Advice Advise(const TunerConfig& config, const Communicator& communicator, int function,
              std::size_t bytes, int pipe_ops, const float ring[kProtocols]) {
  if (function != kReduce && function != kBroadcast) return {};
  const bool has_nvlink = HasNvlink(communicator, ring);
  for (const Rule& rule : config.rules) {
    if (Holds(rule, communicator, function, bytes, has_nvlink))
      return {rule.protocol, rule.channels};
  }
  if (!config.derived || has_nvlink) return {};
  return Derived(communicator, bytes, pipe_ops, ring);
}

void Prefer(int protocol, float* ring, int protocols) {
  if (protocol < 0 || protocol >= protocols || !Offered(ring[protocol])) return;
  const float dearer = std::nextafter(ring[protocol], kNeverChosen);
  for (int p = 0; p < protocols; ++p) {
    if (p != protocol && ring[p] >= 0 && ring[p] <= ring[protocol]) ring[p] = dearer;
  }
}

}  // namespace weft::nccl_plugin
