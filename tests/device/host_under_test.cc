#include "device/host/host_math.h"
#include "tests/support/device.h"

namespace weft::testing {
namespace {

std::function<std::unique_ptr<Math>()> Maker(device::MatMulOptions options) {
  return [options] { return std::make_unique<device::HostMath>(options); };
}

}  // namespace

std::unique_ptr<Device> NewDevice(Clock* clock, int threads) {
  return *CreateHostDevice({.threads = threads, .clock = clock});
}

// Both ways of handling bf16, and products on one and on two threads.
std::vector<ProductMode> ProductModes() {
  return {{"native", Maker({.threads = 1})},
          {"two threads", Maker({.threads = 2})},
          {"widened", Maker({.threads = 1, .native_halves = false})}};
}

std::vector<ProductMode> TriangleModes() {
  return {{"one thread", Maker({.threads = 1, .min_triangle_rows = 1})},
          {"two threads", Maker({.threads = 2, .min_triangle_rows = 1})}};
}

}  // namespace weft::testing
