// Weft's kernels for the fakes: what runs in place of their device code. For whatever program links
// this file.
#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <typeinfo>
#include <vector>

#include "device/cuda/host_block.h"
#include "device/cuda/kernel_list.h"
#include "tests/fakes/engine.h"

namespace weft::fakes {
namespace {

std::string NameOf(const std::type_info& type) {
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr);
  std::string name = demangled;
  std::free(demangled);
  return name;
}

template <typename F>
void Register() {
  const std::string functor = NameOf(typeid(F));
  // As the demangler writes it.
  const std::string end = functor.ends_with('>') ? " >" : ">";
  RegisterKernel<F>(
      "weft::device::RunBlocks<" + functor + end,
      [](unsigned blocks, void** arguments) {
        const auto& kernel = *static_cast<const F*>(arguments[0]);
        device::HostBlock block;
        for (unsigned i = 0; i < blocks; ++i) kernel(block, i);
      },
      [](unsigned blocks, void** arguments) {
        std::vector<Access> accesses;
        const auto visit = [&](const void* data, std::int64_t rows, std::int64_t row_bytes,
                               std::int64_t stride_bytes, bool write) {
          AddRows(accesses, data, rows, static_cast<std::size_t>(row_bytes),
                  static_cast<std::size_t>(stride_bytes), write);
        };
        static_cast<const F*>(arguments[0])->Accesses(blocks, visit);
        return accesses;
      });
}

template <typename... F>
bool RegisterAll(device::KernelList<F...>) {
  (Register<F>(), ...);
  return true;
}

[[maybe_unused]] const bool registered = RegisterAll(device::Kernels{});

}  // namespace
}  // namespace weft::fakes
