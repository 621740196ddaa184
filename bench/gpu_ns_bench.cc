// weft_gpu_ns_bench: Newton-Schulz on GPU 0, in four ways that take turns within one run: Gram NS
// with products enqueued one by one, as a graph that is replayed, as a graph with triangles of
// symmetric products, and plain NS as a graph.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/cuda/cuda_math.h"
#include "device/cuda/make.h"
#include "tests/support/forwarding.h"
#include "update/newton_schulz.h"

namespace weft::bench {
namespace {

constexpr int kRounds = 5;
constexpr double kRoundSeconds = 0.05;  // at least, of each way

template <typename T>
T Must(absl::StatusOr<T> value) {
  WEFT_CHECK(value.ok()) << value.status().ToString();
  return *std::move(value);
}
void Must(const absl::Status& status) { WEFT_CHECK(status.ok()) << status.ToString(); }

class OneByOne final : public Replay {
 public:
  explicit OneByOne(std::function<absl::Status(Stream&)> work) : work_(std::move(work)) {}
  absl::Status Enqueue(Stream& stream) override { return work_(stream); }

 private:
  const std::function<absl::Status(Stream&)> work_;
};

// The GPU, with products of its own kind.
class WayDevice final : public testing::ForwardingDevice {
 public:
  WayDevice(Device& inner, bool graphs, bool triangles)
      : ForwardingDevice(inner),
        graphs_(graphs),
        math_(Must(device::CudaMath::Create(
            /*ordinal=*/0,
            {.min_triangle_rows = triangles ? 1 : std::numeric_limits<std::int64_t>::max()}))) {}

  Math& math() override { return *math_; }
  absl::StatusOr<std::unique_ptr<Replay>> Record(
      std::function<absl::Status(Stream&)> work) override {
    if (graphs_) return inner_.Record(std::move(work));
    return std::make_unique<OneByOne>(std::move(work));
  }

 private:
  const bool graphs_;
  const std::unique_ptr<device::CudaMath> math_;
};

// One way for one shape.
class Way {
 public:
  Way(Device& gpu, WayDevice& device, DType type, std::vector<int> segments, std::int64_t rows,
      std::int64_t cols)
      : gpu_(gpu), stream_(gpu.CreateStream("bench")) {
    NewtonSchulzOptions options;
    options.operand_type = type;
    options.segments = std::move(segments);
    run_ = Must(update::NewtonSchulz::Create(device, options, rows, cols));
    workspace_ = Must(gpu.Allocate(run_->workspace_bytes()));
    direction_ = Must(gpu.Allocate(static_cast<std::size_t>(rows * cols) * sizeof(float)));
  }

  // Of one run, when so many follow each other.
  double Seconds(const float* update, int runs) {
    const Nanos begin = gpu_.clock().Now();
    for (int i = 0; i < runs; ++i) {
      Must(run_->Enqueue(*stream_, update, direction_->as<float>(), workspace_->data()));
    }
    Must(stream_->Synchronize(absl::InfiniteDuration()));
    return static_cast<double>(gpu_.clock().Now() - begin) * 1e-9 / runs;
  }

  std::vector<float> Direction() const {
    std::vector<float> values(direction_->bytes() / sizeof(float));
    Must(gpu_.CopyNow(values.data(), direction_->data(), direction_->bytes()));
    return values;
  }

  double flops() const { return run_->recipe().Cost().dense_flops; }

 private:
  Device& gpu_;
  std::unique_ptr<update::NewtonSchulz> run_;
  std::unique_ptr<Buffer> workspace_, direction_;
  std::unique_ptr<Stream> stream_;  // goes first, when its work has passed
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// ||x - y|| / ||y||
double Difference(const std::vector<float>& x, const std::vector<float>& y) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - y[i], 2);
    size += std::pow(static_cast<double>(y[i]), 2);
  }
  return std::sqrt(difference / size);
}

// Devices: one by one, graph, graph with triangles.
void Measure(Device& gpu, std::array<WayDevice, 3>& devices, DType type, std::int64_t rows,
             std::int64_t cols, const float* update) {
  const std::vector<int> chosen, plain = {0};
  std::array<Way, 4> ways = {Way(gpu, devices[0], type, chosen, rows, cols),
                             Way(gpu, devices[1], type, chosen, rows, cols),
                             Way(gpu, devices[2], type, chosen, rows, cols),
                             Way(gpu, devices[1], type, plain, rows, cols)};
  std::array<int, 4> runs;
  for (int w = 0; w < 4; ++w) {
    ways[w].Seconds(update, 3);  // graphs are made, clocks rise
    runs[w] = 1 + static_cast<int>(kRoundSeconds / ways[w].Seconds(update, 3));
  }
  std::array<std::vector<double>, 4> seconds;
  std::array<std::vector<double>, 3> ratios;
  for (int round = 0; round < kRounds; ++round) {
    std::array<double, 4> now;
    for (int w = 0; w < 4; ++w) {
      now[w] = ways[w].Seconds(update, runs[w]);
      seconds[w].push_back(now[w]);
    }
    ratios[0].push_back(now[1] / now[0]);
    ratios[1].push_back(now[2] / now[1]);
    ratios[2].push_back(now[1] / now[3]);
  }
  std::printf("%-4s %5lld x %-5lld", std::string(Name(type)).c_str(), static_cast<long long>(rows),
              static_cast<long long>(cols));
  for (int w = 0; w < 4; ++w) {
    const double median = Median(seconds[w]);
    std::printf(" %9.3f %6.1f", median * 1e3, ways[w].flops() / median * 1e-12);
  }
  for (const auto& ratio : ratios) std::printf(" %7.3f", Median(ratio));
  std::printf(" %8.1e\n", Difference(ways[2].Direction(), ways[1].Direction()));
  std::fflush(stdout);
}

int Main() {
  const auto gpu = Must(device::MakeCudaDevice({}));
  const DeviceIdentity identity = gpu->identity();
  std::printf("%s, %s, quintic coefficients, medians of %d rounds\n", identity.name.c_str(),
              identity.math_library.c_str(), kRounds);
  std::printf(
      "ms and TFLOP/s (of products in full). A: Gram NS, products one by one. B: as a graph.\n"
      "C: as a graph, symmetric products as triangles at any size. D: plain NS as a graph.\n"
      "C-B: the norm of the difference of their results, relative.\n");
  std::printf("%-18s %9s %6s %9s %6s %9s %6s %9s %6s %7s %7s %7s %8s\n", "", "A ms", "TF/s", "B ms",
              "TF/s", "C ms", "TF/s", "D ms", "TF/s", "B/A", "C/B", "B/D", "C-B");
  std::array<WayDevice, 3> devices = {WayDevice(*gpu, false, false), WayDevice(*gpu, true, false),
                                      WayDevice(*gpu, true, true)};
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {512, 512}, {1024, 1024}, {2048, 2048}, {4096, 4096}, {2560, 9728}};
  for (const auto& [rows, cols] : shapes) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    for (float& value : values) value = normal(random);
    const auto update = Must(gpu->Allocate(values.size() * sizeof(float)));
    Must(gpu->CopyNow(update->data(), values.data(), update->bytes()));
    for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
      Measure(*gpu, devices, type, rows, cols, update->as<float>());
    }
  }
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main() { return weft::bench::Main(); }
