// A trainer that saves on the way and, started again, goes on where it was: on two ranks, then on
// three. Shown in docs/checkpoint.md.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "weft/weft.h"

// One rank: from the checkpoint in `folder`, where there is one, to `steps` steps.
absl::Status Train(weft::Device& device, weft::Transport& transport,
                   const weft::RuntimeOptions& options, const std::string& folder, int steps) {
  std::vector<float> weight(64 * 64, 0.01f), gradient(weight.size());  // outlive the runtime
  auto created = weft::Runtime::Create(options, device, transport);
  if (!created.ok()) return created.status();
  weft::Runtime& runtime = **created;

  weft::MatrixSpec spec;
  spec.name = "blk.0.wq";
  spec.rows = spec.cols = 64;
  spec.weight = weight.data();
  const auto id = runtime.AddMatrix(spec);
  if (!id.ok()) return id.status();
  absl::Status status = runtime.Commit();
  if (status.ok()) status = runtime.Load(folder);           // weight, momentum, number of steps
  if (absl::IsNotFound(status)) status = absl::OkStatus();  // the first start

  while (status.ok() && runtime.steps() < steps) {
    status = runtime.WaitForLayer(0);
    if (!status.ok()) break;
    std::copy(weight.begin(), weight.end(), gradient.begin());  // forward and backward
    weft::MatrixJob job;
    job.matrix = *id;
    job.gradient = gradient.data();
    status = runtime.Submit(job).status();
    if (status.ok()) status = runtime.Step();
    if (status.ok() && runtime.steps() % 2 == 0) status = runtime.Save(folder);
  }
  return status.ok() ? runtime.WaitForStep() : status;
}

// All ranks of one start.
bool Run(int ranks, const std::string& folder, int steps) {
  weft::RuntimeOptions options;
  options.topology.grid = {.nodes = 1, .ranks_per_node = ranks};
  weft::LocalTransportOptions local;
  local.topology = options.topology;
  auto transports = weft::CreateLocalTransports(local);
  if (!transports.ok()) return false;

  std::vector<std::thread> threads;
  std::vector<absl::Status> outcomes(transports->size());
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    threads.emplace_back([&, r] {
      auto device = weft::CreateHostDevice();
      const auto transport = std::move((*transports)[r]);  // destroyed before the device
      outcomes[r] =
          device.ok() ? Train(**device, *transport, options, folder, steps) : device.status();
      if (!outcomes[r].ok()) transport->Abort(outcomes[r]);  // peers wait no longer
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) {
    if (!outcome.ok()) std::cerr << outcome << "\n";
  }
  return std::all_of(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.ok(); });
}

int main(int argc, char** argv) {
  const std::string folder =
      argc > 1 ? argv[1] : (std::filesystem::temp_directory_path() / "weft-checkpoint").string();
  return Run(2, folder, 5) && Run(3, folder, 8) ? 0 : 1;
}
