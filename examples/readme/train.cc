// The example of README.md: two ranks as threads train one matrix. The README shows this file from
// the first include on; readme_test holds the two together.
#include <algorithm>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "weft/weft.h"

// One rank. Its runtime goes first, then its transport, then its device.
absl::Status Train(weft::Device& device, weft::Transport& transport,
                   const weft::RuntimeOptions& options) {
  std::vector<float> weight(256 * 256, 0.01f), gradient(weight.size());  // outlive the runtime
  auto created = weft::Runtime::Create(options, device, transport);
  if (!created.ok()) return created.status();
  weft::Runtime& runtime = **created;

  weft::MatrixSpec spec;
  spec.name = "blk.0.wq";
  spec.rows = spec.cols = 256;
  spec.weight = weight.data();
  spec.layer = 0;
  spec.rule = weft::MuonOptions{};
  const auto id = runtime.AddMatrix(spec);
  if (!id.ok()) return id.status();
  absl::Status status = runtime.Commit();  // collective: plan, prove, warm up

  for (int step = 0; step < 3 && status.ok(); ++step) {
    status = runtime.WaitForLayer(0);  // the weights of the last step have arrived
    if (!status.ok()) break;
    std::copy(weight.begin(), weight.end(), gradient.begin());  // forward and backward
    weft::MatrixJob job;
    job.matrix = *id;
    job.gradient = gradient.data();
    status = runtime.Submit(job).status();     // reductions start now
    if (status.ok()) status = runtime.Step();  // momentum, NS, apply, publish: all issued
  }
  return status.ok() ? runtime.WaitForStep() : status;
}

int main() {
  weft::RuntimeOptions options;
  options.topology.grid = {.nodes = 1, .ranks_per_node = 2};
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
