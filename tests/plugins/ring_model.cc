#include "tests/plugins/ring_model.h"

#include <algorithm>

namespace weft::testing {

using namespace nccl_plugin;  // NOLINT: names of NCCL's tables throughout

const TunerConstantsV5& DefaultConstants() {
  static const TunerConstantsV5 constants = [] {
    TunerConstantsV5 c = {};
    const double base[2][3] = {{6.8, 14, 8.4}, {6.6, 14, 8.4}};
    const double links[3][2][3] = {{{.6, 1.25, 4}, {.6, 1.9, 3.4}},
                                   {{1, 1.9, 4}, {1, 2.5, 5.7}},
                                   {{5, 8.5, 14}, {2.7, 4, 14}}};
    for (int p = 0; p < 3; ++p) {
      for (int a = 0; a < 2; ++a) {
        c.base_latency[a][p] = base[a][p];
        for (int link = 0; link < 3; ++link) c.link_latency[link][a][p] = links[link][a][p];
      }
    }
    const double ll128[4][3] = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}};
    std::copy(&ll128[0][0], &ll128[0][0] + 12, &c.channel_ring_ll128[0][0]);
    return c;
  }();
  return constants;
}

Table CostsOf(const Ring& ring, std::size_t bytes, int pipe_ops) {
  Table table(std::size_t{kAlgorithms} * kProtocols, -1.0f);
  const TunerConstantsV5& c = DefaultConstants();
  const int link = ring.nodes > 1 ? kNet : ring.nvlink ? kNvlink : kPci;
  for (int p = 0; p < kProtocols; ++p) {
    if (p == kLl128 && !ring.ll128) continue;
    auto bandwidth = static_cast<float>(ring.gbps);
    if (p == kLl) bandwidth = static_cast<float>(bandwidth * .5);
    if (p == kLl128)
      bandwidth = static_cast<float>(std::min(bandwidth * .92, ring.channels * 20.0));
    float latency = static_cast<float>(c.base_latency[kRing][p]);
    const int row = p == kSimple && !ring.same_channels ? kTree : kRing;
    const auto hop = static_cast<float>(c.link_latency[link][row][p]);
    latency += ring.same_channels ? hop : static_cast<float>(ring.ranks) * hop;
    table[kRing * kProtocols + p] =
        latency * static_cast<float>(pipe_ops) + static_cast<float>(bytes) / (1000 * bandwidth);
  }
  return table;
}

std::optional<std::pair<int, int>> Pick(const Table& table, int protocols) {
  float least = 3600000000.0f;
  std::optional<std::pair<int, int>> picked;
  for (int i = 0; i < static_cast<int>(table.size()); ++i) {
    if (table[i] >= 0 && table[i] < least) {
      least = table[i];
      picked = {i / protocols, i % protocols};
    }
  }
  return picked;
}

int ChannelsOf(const Ring& ring, int protocol, std::size_t bytes, int advised) {
  if (advised != 0) return std::min(advised, ring.channels);
  const std::size_t threads = protocol == kSimple ? ring.simple_threads : 512;
  const std::size_t threshold = protocol == kSimple ? 64 : 8 * ring.ranks;
  int channels = ring.channels;
  while (channels > 1 && bytes < channels * threads * threshold) --channels;
  return channels;
}

}  // namespace weft::testing
