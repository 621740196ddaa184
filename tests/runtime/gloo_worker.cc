// One process of a gloo world, for gloo_runtime_test: trains a small model and reports.
//
//   gloo_worker RANK SIZE STORE MODE OUT
//
// MODE: run; run-split (collectives in split form where there is one); die-before (rank 2 kills
// itself before it closes the last step); die-during (rank 2 kills itself inside its rule, in the
// middle of the last step). Writes to OUT the weights as raw floats (run, run-split), or "SECONDS
// MESSAGE": how long the failure took from the moment that all ranks had completed the step before,
// and what it says. Exits with 0 when it ended as its mode asks.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/support/costs.h"
#include "tests/support/model.h"
#include "weft/device.h"
#include "weft/runtime.h"
#include "weft/transport.h"

namespace weft {
namespace {

constexpr int kSteps = 3;
constexpr int kVictim = 2;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "gloo_worker: %s\n", what.c_str());
  std::exit(1);
}

void Check(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

int Main(int rank, int size, const std::string& store, const std::string& mode,
         const std::string& out) {
  auto device = CreateHostDevice();
  Check(device.status());
  const bool run = mode.rfind("run", 0) == 0;
  GlooTransportOptions transport_options;
  transport_options.rank = rank;
  transport_options.size = size;
  transport_options.store = store;
  transport_options.deadline = run ? absl::Seconds(120) : absl::Seconds(10);
  auto transport = CreateGlooTransport(transport_options);
  Check(transport.status());
  RuntimeOptions options;
  options.topology.grid = {2, size / 2};
  options.deadline = transport_options.deadline;
  if (mode == "run-split") {
    options.costs = testing::CostsWithForms(options.topology, testing::kAlwaysSplit);
  }
  if (mode == "run-paired") options.costs = testing::CostsWithPairs(options.topology);
  auto runtime = Runtime::Create(options, **device, **transport);
  Check(runtime.status());

  testing::RankModel model({{16, 24}, {24, 16}, {16, 16}, {8, 40}}, Layout::kReplicated,
                           GradientKind::kLocal, rank, size, 11);
  CustomRule deadly;
  deadly.flops = 1e12;  // one owner each: LPT spreads them, so the victim owns one
  deadly.enqueue = [&](const RuleContext& context) -> absl::Status {
    if (context.step == kSteps - 1 && rank == kVictim) {
      context.stream.Enqueue([] {
        kill(getpid(), SIGKILL);
        return absl::OkStatus();
      });
    }
    return absl::OkStatus();
  };
  for (std::size_t m = 0; m < model.size(); ++m) {
    Rule rule = MuonOptions{};
    if (mode == "die-during") rule = deadly;
    Check((*runtime)->AddMatrix(model.Spec(m, rule)).status());
  }
  Check((*runtime)->Commit());
  const Clock& clock = (*device)->clock();
  Nanos begin = 0;
  absl::Status status;
  for (int step = 0; step < kSteps && status.ok(); ++step) {
    begin = clock.Now();
    for (std::size_t m = 0; m < model.size() && status.ok(); ++m) {
      const std::vector<float> gradient = model.Gradient(m, step);
      status = (*runtime)
                   ->Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradient.data()})
                   .status();
    }
    if (mode == "die-before" && rank == kVictim && step == kSteps - 1) kill(getpid(), SIGKILL);
    if (status.ok()) status = (*runtime)->Step();
    if (status.ok()) status = (*runtime)->WaitForStep();
  }
  std::ofstream file(out, std::ios::binary);
  if (!run) {
    if (status.ok()) Die("nothing failed");
    file << 1e-9 * static_cast<double>(clock.Now() - begin) << " " << status.message();
    return 0;
  }
  Check(status);
  for (const auto& weight : model.weights()) {
    file.write(reinterpret_cast<const char*>(weight.data()),
               static_cast<std::streamsize>(weight.size() * sizeof(float)));
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  return weft::Main(std::atoi(argv[1]), std::atoi(argv[2]), argv[3], argv[4], argv[5]);
}
