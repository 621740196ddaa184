// Kernels by name: those that tests registered, and those that programs launch.
#pragma once

#include <string>

#include "tests/fakes/engine.h"

namespace weft::fakes {

// By the mangled name; null where none was registered. Stays valid.
const Kernel* FindKernel(const std::string& mangled_name);
// Without result and parameters.
std::string KernelName(const std::string& mangled_name);

}  // namespace weft::fakes
