// Ranks as threads behind emulated links, on a machine made small and slow: matrices have fewer
// elements and links and devices run slower, so that operations last what real ones do, times a
// factor, and the work of emulating them is little beside that.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "weft/device.h"
#include "weft/runtime.h"
#include "weft/topology.h"
#include "weft/transport.h"

namespace weft::bench {

// One step of a real run lasts `slowdown` times as long here; a real matrix has `side_ratio` times
// the rows and columns that the emulated one has.
struct Scale {
  double side_ratio = 1;
  double slowdown = 1;
};

inline Topology Emulated(Topology topology, const Scale& scale) {
  const double bandwidth = scale.side_ratio * scale.side_ratio * scale.slowdown;
  for (Link* link : {&topology.intra, &topology.inter}) {
    link->latency_us *= scale.slowdown;
    link->gigabytes_per_second /= bandwidth;
  }
  topology.root_complex_gigabytes_per_second /= bandwidth;
  return topology;
}

// The small matrices stand for large ones, which neither travel in buckets nor pay as batches.
inline void AsLargeMatrices(RuntimeOptions& options, bool pairs = true) {
  options.limits.bucket_bytes = 0;
  Topology topology = options.topology;
  // Where links cost nothing, nothing is gained by pairs.
  if (!pairs) topology = Topology{.grid = topology.grid};
  options.costs = std::make_shared<const CostModel>(
      topology, AnalyticRates{.flops_per_second = 1, .launch_seconds = 0});
}

// Of a device on which nothing but Newton-Schulz takes time, at this rate; 0: nothing does.
inline AnalyticRates OnlyProducts(double flops_per_second) {
  constexpr double kAtOnce = std::numeric_limits<double>::infinity();
  return {.flops_per_second = flops_per_second > 0 ? flops_per_second : kAtOnce,
          .bytes_per_second = kAtOnce,
          .launch_seconds = 0};
}

// One rank of a world. Members go in the order in which they depend on each other.
struct EmulatedRank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Transport> transport;
  std::vector<std::uint16_t> memory;  // bf16: weights, then gradients
  std::unique_ptr<Runtime> runtime;
};

class EmulatedWorld {
 public:
  using Body = std::function<void(int rank, EmulatedRank&)>;

  explicit EmulatedWorld(const Topology& topology) : ranks_(topology.grid.size()) {
    auto transports = CreateLocalTransports({.topology = topology});
    WEFT_CHECK(transports.ok()) << transports.status();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].transport = std::move((*transports)[r]);
    }
  }
  // Runtimes take leave of each other: all at once.
  ~EmulatedWorld() {
    OnAll([](int, EmulatedRank& rank) { rank.runtime.reset(); });
  }
  EmulatedWorld(const EmulatedWorld&) = delete;
  EmulatedWorld& operator=(const EmulatedWorld&) = delete;

  // Runs `body` on every rank at once, each in a thread of its own.
  void OnAll(const Body& body) {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      threads.emplace_back([&, r] { body(static_cast<int>(r), ranks_[r]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<EmulatedRank>& ranks() { return ranks_; }

 private:
  std::vector<EmulatedRank> ranks_;
};

}  // namespace weft::bench
