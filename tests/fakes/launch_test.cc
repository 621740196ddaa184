// Kernels, as programs that nvcc compiles announce and launch them, and the names of the library.
#include <dlfcn.h>

#include "tests/fakes/cudart/compiled_code.h"
#include "tests/fakes/program.h"

namespace weft::fakes {
namespace {

// Only their addresses count.
const char fill_stub = 0, unknown_stub = 0;

class LaunchTest : public FakesTest {
 protected:
  static void SetUpTestSuite() {
    static int image;
    module_ = __cudaRegisterFatBinary(&image);
    // template <class T> __global__ void demo::Fill(T*, unsigned, T)
    __cudaRegisterFunction(module_, &fill_stub, nullptr, "_ZN4demo4FillIfEEvPT_jS1_", -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFunction(module_, &unknown_stub, nullptr, "_ZN4demo5OtherEv", -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(module_);
    EXPECT_NE(__cudaInitModule(module_), 0);
    RegisterKernel<float*, unsigned, float>(
        "void demo::Fill<float>(float*, unsigned int, float)",
        [](unsigned grid, void** args) {
          grid_ = grid;
          std::fill_n(*static_cast<float**>(args[0]), *static_cast<unsigned*>(args[1]),
                      *static_cast<float*>(args[2]));
        },
        [](unsigned, void** args) {
          return std::vector<Access>{{*static_cast<float**>(args[0]),
                                      *static_cast<unsigned*>(args[1]) * sizeof(float), true}};
        });
  }
  static void TearDownTestSuite() { __cudaUnregisterFatBinary(module_); }

  // As compiled code does for stub<<<grid, 128, 0, stream>>>(data, count, value).
  static cudaError_t Launch(const void* stub, unsigned grid, cudaStream_t stream, float* data,
                            unsigned count, float value) {
    __cudaPushCallConfiguration(dim3(grid), dim3(128), 0, stream);
    dim3 grids, blocks;
    std::size_t shared = 0;
    cudaStream_t to = nullptr;
    EXPECT_EQ(__cudaPopCallConfiguration(&grids, &blocks, &shared, &to), cudaSuccess);
    cudaKernel_t kernel = nullptr;
    EXPECT_EQ(__cudaGetKernel(&kernel, stub), cudaSuccess);
    void* args[] = {&data, &count, &value};
    return __cudaLaunchKernel(kernel, grids, blocks, args, shared, to);
  }

  static void** module_;
  static unsigned grid_;
};
void** LaunchTest::module_;
unsigned LaunchTest::grid_;

// The arguments are gone when it runs.
TEST_F(LaunchTest, ARegisteredKernelRunsOnTheHost) {
  const cudaStream_t stream = NewStream("a");
  auto* data = reinterpret_cast<float*>(NewMemory(400));
  OK(Launch(&fill_stub, 3, stream, data, 100, 2.5f));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(data[0], 2.5f);
  EXPECT_EQ(data[99], 2.5f);
  EXPECT_EQ(grid_, 3u);
  EXPECT_EQ(Executed(), (std::vector<std::string>{"device 0 stream 'a': demo::Fill<float>"}));
  EXPECT_EQ(FaultText(), "");
  OK(Launch(&fill_stub, 1, stream, data, 101, 0));
  OK(cudaStreamSynchronize(stream));
  ExpectFault(FaultKind::kBounds, {"'demo::Fill<float>' on device 0 stream 'a'", "[0, 404)"});
  EXPECT_EQ(data[0], 2.5f);
}

TEST_F(LaunchTest, OtherWaysToLaunch) {
  auto* data = reinterpret_cast<float*>(NewMemory(400));
  unsigned count = 100;
  float value = 1;
  void* args[] = {&data, &count, &value};
  OK(cudaLaunchKernel(&fill_stub, dim3(1), dim3(32), args, 0, nullptr));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(data[99], 1);
  value = 2;
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1);
  OK(cudaLaunchKernelExC(&config, &fill_stub, args));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(data[99], 2);
}

TEST_F(LaunchTest, AKernelThatIsNotRegisteredIsNamed) {
  EXPECT_EQ(Launch(&unknown_stub, 1, nullptr, nullptr, 0, 0), cudaErrorInvalidDeviceFunction);
  ExpectFault(FaultKind::kMisuse, {"did not register: demo::Other"});
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(Launch(&grid_, 1, nullptr, nullptr, 0, 0), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(Count(FaultKind::kMisuse), 2);
}

TEST_F(LaunchTest, AnEmptyGridIsRefused) {
  EXPECT_EQ(Launch(&fill_stub, 0, nullptr, nullptr, 0, 0), cudaErrorInvalidConfiguration);
  ExpectFault(FaultKind::kMisuse, {"impossible grid: demo::Fill<float>"});
}

TEST_F(LaunchTest, TheFirstLaunchWaitsForTheDeviceWhereLoadingIsLazy) {
  for (const bool lazy : {true, false}) {
    setenv("CUDA_MODULE_LOADING", lazy ? "LAZY" : "EAGER", 1);
    FakesTest::SetUp();
    const HostThread rank;
    const cudaStream_t a = NewStream("a"), b = NewStream("b");
    auto* data = reinterpret_cast<float*>(NewMemory(8));
    const auto enqueue = [&] { Engine::Get().Enqueue(a, Touch("before", {})); };
    enqueue();
    OK(Launch(&fill_stub, 1, b, data, 2, 1));
    EXPECT_EQ(Executed().size(), lazy ? 1u : 0u);
    enqueue();
    OK(Launch(&fill_stub, 1, b, data, 2, 1));
    EXPECT_EQ(Executed().size(), lazy ? 1u : 0u);
    OK(cudaDeviceSynchronize());
    EXPECT_EQ(Executed().size(), 4u);
    EXPECT_EQ(FaultText(), "");
  }
  unsetenv("CUDA_MODULE_LOADING");
}

TEST_F(LaunchTest, WhatADeviceSaysOfItself) {
  int count = 0, value = 0;
  OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
  EXPECT_EQ(value, options().processors);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 2),
            cudaErrorInvalidDevice);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 0));
  EXPECT_EQ(value, 1);
  cudaDeviceProp properties = {};
  OK(cudaGetDeviceProperties(&properties, 0));
  EXPECT_EQ(properties.multiProcessorCount, options().processors);
  OK(cudaRuntimeGetVersion(&value));
  EXPECT_EQ(value, CUDART_VERSION);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, &fill_stub, 256, 0));
  EXPECT_EQ(value, 8);
  cudaFuncAttributes attributes = {};
  OK(cudaFuncGetAttributes(&attributes, &fill_stub));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
}

// With the version that programs built against the real library ask for.
TEST(Symbols, TheLibraryExportsItsNamesUnderTheRealVersion) {
  void* library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  for (const char* name : {"cudaMalloc",
                           "cudaFree",
                           "cudaMallocAsync",
                           "cudaFreeAsync",
                           "cudaMallocFromPoolAsync",
                           "cudaDeviceGetDefaultMemPool",
                           "cudaMemPoolSetAttribute",
                           "cudaMemGetInfo",
                           "cudaMemcpy",
                           "cudaMemcpyAsync",
                           "cudaMemset",
                           "cudaMemsetAsync",
                           "cudaHostAlloc",
                           "cudaFreeHost",
                           "cudaHostRegister",
                           "cudaHostUnregister",
                           "cudaPointerGetAttributes",
                           "cudaStreamCreate",
                           "cudaStreamCreateWithFlags",
                           "cudaStreamCreateWithPriority",
                           "cudaStreamDestroy",
                           "cudaStreamWaitEvent",
                           "cudaStreamQuery",
                           "cudaStreamSynchronize",
                           "cudaStreamGetDevice",
                           "cudaStreamGetPriority",
                           "cudaStreamBeginCapture",
                           "cudaStreamEndCapture",
                           "cudaStreamIsCapturing",
                           "cudaStreamGetCaptureInfo",
                           "cudaThreadExchangeStreamCaptureMode",
                           "cudaGraphInstantiate",
                           "cudaGraphInstantiateWithFlags",
                           "cudaGraphLaunch",
                           "cudaGraphUpload",
                           "cudaGraphExecDestroy",
                           "cudaGraphDestroy",
                           "cudaGraphGetNodes",
                           "cudaEventCreate",
                           "cudaEventCreateWithFlags",
                           "cudaEventRecord",
                           "cudaEventRecordWithFlags",
                           "cudaEventQuery",
                           "cudaEventSynchronize",
                           "cudaEventElapsedTime",
                           "cudaEventDestroy",
                           "cudaLaunchHostFunc",
                           "cudaLaunchKernel",
                           "cudaLaunchKernelExC",
                           "cudaFuncGetAttributes",
                           "cudaFuncSetAttribute",
                           "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                           "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
                           "cudaGetDeviceCount",
                           "cudaSetDevice",
                           "cudaGetDevice",
                           "cudaDeviceGetAttribute",
                           "cudaDeviceGetStreamPriorityRange",
                           "cudaGetDeviceProperties",
                           "cudaDeviceSynchronize",
                           "cudaDriverGetVersion",
                           "cudaRuntimeGetVersion",
                           "cudaGetLastError",
                           "cudaPeekAtLastError",
                           "cudaGetErrorName",
                           "cudaGetErrorString",
                           "__cudaRegisterFatBinary",
                           "__cudaRegisterFatBinaryEnd",
                           "__cudaUnregisterFatBinary",
                           "__cudaRegisterFunction",
                           "__cudaRegisterVar",
                           "__cudaInitModule",
                           "__cudaPushCallConfiguration",
                           "__cudaPopCallConfiguration",
                           "__cudaGetKernel",
                           "__cudaLaunchKernel"}) {
    EXPECT_NE(dlvsym(library, name, "libcudart.so.13"), nullptr) << name;
  }
  dlclose(library);
}

}  // namespace
}  // namespace weft::fakes
