// The example of docs/owned.md: two ranks as threads train layers of which each keeps its share.
// The page shows this file from Visit() to the end of Train(); readme_test holds the two together.
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "weft/weft.h"

constexpr int kLayers = 4, kMicroSteps = 2;
constexpr std::int64_t kSide = 64;

// Reads a layer's weights in one direction of a pass.
absl::Status Visit(weft::Runtime& runtime, int layer, bool backward, bool last) {
  absl::Status status = runtime.WaitForLayer(layer);  // they are here, later ones on their way
  if (!status.ok()) return status;
  const auto weight = runtime.Parameter(layer);
  if (!weight.ok()) return weight.status();
  const auto* const w = static_cast<const float*>(*weight);  // until ParameterReleased()
  if (backward) {
    const std::vector<float> gradient(w, w + kSide * kSide);  // what backward computes
    weft::MatrixJob job;
    job.matrix = layer;
    job.gradient = gradient.data();
    job.more = !last;  // another micro-step follows: nothing is reduced yet
    status = runtime.Submit(job).status();
    if (!status.ok()) return status;
  }
  return runtime.ParameterReleased(layer);
}

// One rank of a trainer that computes on the host. `options.limits.passes` is kMicroSteps.
absl::Status Train(weft::Device& device, weft::Transport& transport,
                   const weft::RuntimeOptions& options) {
  std::vector<weft::MatrixSpec> specs(kLayers);
  for (int layer = 0; layer < kLayers; ++layer) {
    specs[layer].name = "blk." + std::to_string(layer);
    specs[layer].rows = specs[layer].cols = kSide;
    specs[layer].layout = weft::Layout::kOwned;
    specs[layer].layer = layer;
  }
  // The plan tells who owns what: the first weight has to be on its owner alone.
  const auto plan = weft::PlanFor(specs, options);
  if (!plan.ok()) return plan.status();
  std::vector<float> first(kSide * kSide, 0.01f);
  auto created = weft::Runtime::Create(options, device, transport);
  if (!created.ok()) return created.status();
  weft::Runtime& runtime = **created;
  for (int layer = 0; layer < kLayers; ++layer) {
    if (plan->matrices[layer].owner == transport.rank()) specs[layer].weight = first.data();
    const auto id = runtime.AddMatrix(specs[layer]);
    if (!id.ok()) return id.status();
  }
  absl::Status status = runtime.Commit();  // copies the first weights

  for (int step = 0; step < 3 && status.ok(); ++step) {
    for (int micro = 0; micro < kMicroSteps; ++micro) {
      const bool last = micro + 1 == kMicroSteps;
      for (int l = 0; l < kLayers && status.ok(); ++l) status = Visit(runtime, l, false, last);
      for (int l = kLayers - 1; l >= 0 && status.ok(); --l) status = Visit(runtime, l, true, last);
    }
    if (status.ok()) status = runtime.Step();  // owners update what they keep
  }
  return status.ok() ? runtime.WaitForStep() : status;
}

int main() {
  weft::RuntimeOptions options;
  options.topology.grid = {.nodes = 1, .ranks_per_node = 2};
  options.limits.passes = kMicroSteps;
  weft::LocalTransportOptions local;
  local.topology = options.topology;
  auto transports = weft::CreateLocalTransports(local);
  if (!transports.ok()) return 1;

  std::vector<std::thread> ranks;
  std::vector<absl::Status> outcomes(transports->size());
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    ranks.emplace_back([&, r] {
      auto device = weft::CreateHostDevice();
      const auto transport = std::move((*transports)[r]);  // destroyed before the device
      outcomes[r] = device.ok() ? Train(**device, *transport, options) : device.status();
      if (!outcomes[r].ok()) transport->Abort(outcomes[r]);  // peers wait no longer
    });
  }
  for (std::thread& rank : ranks) rank.join();
  int failed = 0;
  for (const absl::Status& outcome : outcomes) {
    if (outcome.ok()) continue;
    std::cerr << outcome << "\n";
    failed = 1;
  }
  return failed;
}
