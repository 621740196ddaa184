// The device that a test program is about: laws of devices are written once and linked into one
// program per leaf, each with its own definitions of what follows.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/clock.h"
#include "weft/device.h"
#include "weft/math.h"

namespace weft::testing {

// `threads`: as HostDeviceOptions::threads, where the device has such a thing.
std::unique_ptr<Device> NewDevice(Clock* clock = nullptr, int threads = 1);

// A way in which the device computes products. Its streams are a device's of NewDevice().
struct ProductMode {
  std::string name;
  std::function<std::unique_ptr<Math>()> math;
};
std::vector<ProductMode> ProductModes();
// Symmetric results of any size as triangles.
std::vector<ProductMode> TriangleModes();

}  // namespace weft::testing
