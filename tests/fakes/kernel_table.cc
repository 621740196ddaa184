#include "tests/fakes/kernel_table.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace weft::fakes {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, Kernel> kernels;
};

Table& TheTable() {
  static auto* table = new Table;  // Libraries register from their initializers.
  return *table;
}

// "void weft::Fill<float>(float*, int)" -> "weft::Fill<float>".
std::string Bare(std::string name) {
  if (name.starts_with("void ")) name.erase(0, 5);
  if (!name.ends_with(')')) return name;
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace

std::string KernelName(const std::string& mangled_name) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled_name.c_str(), nullptr, nullptr, &status);
  if (status != 0) return mangled_name;
  std::string name = Bare(demangled);
  std::free(demangled);
  return name;
}

void RegisterKernel(std::string demangled_name, Kernel kernel) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  table.kernels.insert_or_assign(Bare(std::move(demangled_name)), std::move(kernel));
}

const Kernel* FindKernel(const std::string& mangled_name) {
  const std::string name = KernelName(mangled_name);
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  const auto found = table.kernels.find(name);
  return found == table.kernels.end() ? nullptr : &found->second;
}

}  // namespace weft::fakes
