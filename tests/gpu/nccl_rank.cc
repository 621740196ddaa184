// One rank of a world of processes that share GPU 0, for scripts/gpu-check: trains a small model
// over NCCL and compares it with the serial float64 reference.
//
//   weft_gpu_nccl_rank RANK SIZE STORE OUT
//
// STORE: a directory, empty at the start. Writes the weights to OUT as raw floats: those of all
// ranks must be the same bits. Exits with 0 when all went well and the weights are the reference's.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/relative_error.h"
#include "tools/reference/update.h"
#include "weft/device.h"
#include "weft/runtime.h"
#include "weft/transport.h"

namespace weft {
namespace {

constexpr int kSteps = 3;
// Sums are rounded at every hop.
constexpr double kTolerance = 1e-4;
constexpr absl::Duration kDeadline = absl::Seconds(120);

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "weft_gpu_nccl_rank: %s\n", what.c_str());
  std::exit(1);
}

void Check(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

MuonOptions Muon() {
  MuonOptions muon;
  muon.lr = 0.05;
  muon.momentum = 0.9;
  muon.weight_decay = 0.1;
  return muon;
}

// Matrix `m` after all steps.
std::vector<double> Expected(const testing::RankModel& model, std::size_t m) {
  reference::MuonSettings settings;
  settings.lr = Muon().lr;
  settings.momentum = Muon().momentum;
  settings.weight_decay = Muon().weight_decay;
  settings.iterations.assign(5, {3.4445, -4.7750, 2.0315});
  const std::vector<float> first = model.FirstWeight(m);
  std::vector<double> weight(first.begin(), first.end());
  std::vector<double> momentum(weight.size(), 0.0);
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> mean = model.MeanGradient(m, step);
    reference::MuonStep(settings, model.shape(m).rows, model.shape(m).cols,
                        std::vector<double>(mean.begin(), mean.end()), momentum, weight);
  }
  return weight;
}

void Train(Runtime& runtime, testing::RankModel& model) {
  for (std::size_t m = 0; m < model.size(); ++m) {
    Check(runtime.AddMatrix(model.Spec(m, Muon())).status());
  }
  Check(runtime.Commit());
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t m = model.size(); m-- > 0;) {
      const std::vector<float> gradient = model.Gradient(m, step);
      Check(runtime.Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradient.data()})
                .status());
    }
    Check(runtime.Step());
    Check(runtime.WaitForStep());
  }
}

int Main(int rank, int size, const std::string& store, const std::string& out) {
  auto device = CreateCudaDevice();
  Check(device.status());
  auto transport = CreateNcclTransport({.rank = rank,
                                        .size = size,
                                        .store = store,
                                        .deadline = kDeadline,
                                        .max_ctas = 2},  // room for all ranks at once
                                       **device);
  Check(transport.status());
  RuntimeOptions options;
  options.topology.grid = {2, size / 2};
  options.strategy = Strategy::kOwner;
  options.deadline = kDeadline;
  auto runtime = Runtime::Create(options, **device, **transport);
  Check(runtime.status());
  testing::RankModel model({{128, 192}, {192, 128}, {128, 128}, {64, 320}}, Layout::kReplicated,
                           GradientKind::kLocal, rank, size, 11);
  Train(**runtime, model);

  double worst = 0;
  std::ofstream file(out, std::ios::binary);
  for (std::size_t m = 0; m < model.size(); ++m) {
    const std::vector<float>& weight = model.weight(m);
    const double error = testing::RelativeError(weight, Expected(model, m));
    worst = error <= worst ? worst : error;  // keeps a NaN
    file.write(reinterpret_cast<const char*>(weight.data()),
               static_cast<std::streamsize>(weight.size() * sizeof(float)));
  }
  file.close();
  if (!file) Die("cannot write " + out);
  std::printf("rank %d of %d: largest relative error %.2g\n", rank, size, worst);
  return worst <= kTolerance ? 0 : 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const int size = argc == 5 ? std::atoi(argv[2]) : 0;
  if (size < 2 || size % 2 != 0) {
    std::fprintf(stderr, "usage: weft_gpu_nccl_rank RANK SIZE STORE OUT, SIZE even\n");
    return 2;
  }
  return weft::Main(std::atoi(argv[1]), size, argv[3], argv[4]);
}
