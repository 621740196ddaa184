// The laws' device: GPU 0 as it is.
#include <cstdio>
#include <cstdlib>

#include "device/cuda/cuda_math.h"
#include "device/cuda/make.h"
#include "tests/support/device.h"

namespace weft::testing {
namespace {

std::function<std::unique_ptr<Math>()> Maker(device::ProductOptions options) {
  return [options] { return *device::CudaMath::Create(/*ordinal=*/0, options); };
}

}  // namespace

std::unique_ptr<Device> NewDevice(Clock* clock, int) {
  auto device = device::MakeCudaDevice({.clock = clock});
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(device);
}

std::vector<ProductMode> ProductModes() {
  return {{"all processors", Maker({})},
          {"some", Maker({.processors = 16})},
          {"without a workspace", Maker({.workspace_bytes = 0})}};
}

std::vector<ProductMode> TriangleModes() {
  return {{"tiles of 16", Maker({.min_triangle_rows = 1, .tile_rows = 16})},
          {"tiles of 33", Maker({.min_triangle_rows = 1, .tile_rows = 33})}};
}

}  // namespace weft::testing
