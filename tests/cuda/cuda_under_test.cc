#include <algorithm>

#include "device/cuda/cuda_math.h"
#include "device/cuda/make.h"
#include "tests/support/device.h"
#include "tests/support/fake_world.h"

namespace weft::testing {
namespace {

std::function<std::unique_ptr<Math>()> Maker(device::ProductOptions options) {
  options.workspace_bytes = std::min(options.workspace_bytes, kFakeWorkspace);
  return [options] { return *device::CudaMath::Create(/*ordinal=*/0, options); };
}

}  // namespace

std::unique_ptr<Device> NewDevice(Clock* clock, int) {
  return *device::MakeCudaDevice({.workspace_bytes = kFakeWorkspace, .clock = clock});
}

std::vector<ProductMode> ProductModes() {
  return {{"all processors", Maker({})},
          {"some", Maker({.processors = 100})},
          {"without a workspace", Maker({.workspace_bytes = 0})}};
}

std::vector<ProductMode> TriangleModes() {
  return {{"tiles of 16", Maker({.min_triangle_rows = 1, .tile_rows = 16})},
          {"tiles of 33", Maker({.min_triangle_rows = 1, .tile_rows = 33})}};
}

}  // namespace weft::testing
