// Kernels: how compiled programs announce and launch them.
#include <map>
#include <mutex>
#include <utility>

#include "tests/fakes/cudart/common.h"
#include "tests/fakes/cudart/compiled_code.h"
#include "tests/fakes/kernel_table.h"

namespace weft::fakes {
namespace {

// By the address of the host's stub: the mangled name. Of programs and libraries that are loaded,
// so not Reset's to forget.
struct Stubs {
  std::mutex mutex;
  std::map<const void*, std::string> names;
};

Stubs& TheStubs() {
  static auto* stubs = new Stubs;
  return *stubs;
}

std::string StubName(const void* stub) {
  Stubs& stubs = TheStubs();
  const std::lock_guard lock(stubs.mutex);
  const auto found = stubs.names.find(stub);
  return found == stubs.names.end() ? "" : found->second;
}

// The first use of a kernel loads it, which waits for the device where loading is lazy.
int Load(Call& call, const std::string& name) {
  if (!call.device().loaded.insert(name).second || !call.world().lazy_loading) return kSuccess;
  return call.BlockUntilIdle(call.thread().device);
}

// The arguments of a launch, copied.
struct Arguments {
  std::vector<std::vector<std::byte>> values;
  std::vector<void*> pointers;

  Arguments(const Kernel& kernel, void** args) {
    for (std::size_t i = 0; i < kernel.parameter_bytes.size(); ++i) {
      const auto* first = static_cast<const std::byte*>(args[i]);
      values.emplace_back(first, first + kernel.parameter_bytes[i]);
    }
    for (auto& value : values) pointers.push_back(value.data());
  }
};

int Launch(const void* stub, dim3 grid, dim3 block, void** args, cudaStream_t handle) {
  const std::string mangled = StubName(stub);
  const std::string name = KernelName(mangled);
  const Kernel* kernel = FindKernel(mangled);
  Call call("launching a kernel");
  if (call.error() != 0) return call.error();
  if (kernel == nullptr) {
    call.Misuse(mangled.empty() ? "that no program announced"
                                : "that the test did not register: " + name);
    return cudaErrorInvalidDeviceFunction;
  }
  if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z == 0 ||
      block.x * block.y * block.z > 1024 || grid.y > 65535 || grid.z > 65535) {
    call.Misuse("with an impossible grid: " + name);
    return cudaErrorInvalidConfiguration;
  }
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (const int error = call.CheckCurrent(*stream)) return error;
  if (stream->capture == nullptr) {
    if (const int error = Load(call, name)) return error;
  }
  auto arguments = std::make_shared<Arguments>(*kernel, args);
  Work work;
  work.name = name;
  work.accesses = kernel->accesses(grid.x, arguments->pointers.data());
  work.run = [kernel, arguments, grid] { kernel->run(grid.x, arguments->pointers.data()); };
  return call.Enqueue(stream, std::move(work));
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};

std::vector<Configuration>& Configurations() {
  static thread_local std::vector<Configuration> configurations;
  return configurations;
}

int CheckFunction(Call& call, const void* stub) {
  const std::string mangled = StubName(stub);
  if (mangled.empty()) return cudaErrorInvalidDeviceFunction;
  return Load(call, KernelName(mangled));
}

}  // namespace
}  // namespace weft::fakes

using weft::fakes::Call;
using weft::fakes::Return;

extern "C" {

void** __cudaRegisterFatBinary(void* image) { return new void*(image); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** handle) { delete handle; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  weft::fakes::Stubs& stubs = weft::fakes::TheStubs();
  const std::lock_guard lock(stubs.mutex);
  stubs.names[stub] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                     struct CUstream_st* stream) {
  weft::fakes::Configurations().push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  auto& configurations = weft::fakes::Configurations();
  if (configurations.empty()) return Return(cudaErrorMissingConfiguration);
  const weft::fakes::Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t,
                               cudaStream_t stream) {
  return Return(weft::fakes::Launch(kernel, grid, block, args, stream));
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** args, size_t,
                             cudaStream_t stream) {
  return Return(weft::fakes::Launch(stub, grid, block, args, stream));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub, void** args) {
  return Return(weft::fakes::Launch(stub, config->gridDim, config->blockDim, args, config->stream));
}
cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  return __cudaGetKernel(kernel, stub);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attributes, const void* stub) {
  Call call("cudaFuncGetAttributes");
  if (call.error() != 0) return Return(call.error());
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return Return(weft::fakes::CheckFunction(call, stub));
}
cudaError_t cudaFuncSetAttribute(const void* stub, enum cudaFuncAttribute, int) {
  Call call("cudaFuncSetAttribute");
  if (call.error() != 0) return Return(call.error());
  return Return(weft::fakes::CheckFunction(call, stub));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub,
                                                          int block_size, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, stub, block_size, shared,
                                                                0);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* stub,
                                                                   int block_size, size_t,
                                                                   unsigned int) {
  Call call("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  if (call.error() != 0) return Return(call.error());
  if (block_size <= 0 || block_size > 1024) return Return(cudaErrorInvalidValue);
  *blocks = 2048 / block_size;
  return Return(weft::fakes::CheckFunction(call, stub));
}

}  // extern "C"
