// What code that nvcc compiles calls. The toolkit declares it in <crt/host_runtime.h> and
// <crt/device_functions.h>, which only nvcc can read.
#pragma once

#include <cuda_runtime_api.h>

extern "C" {
void** CUDARTAPI __cudaRegisterFatBinary(void* image);
void CUDARTAPI __cudaRegisterFatBinaryEnd(void** handle);
void CUDARTAPI __cudaUnregisterFatBinary(void** handle);
void CUDARTAPI __cudaRegisterVar(void** handle, char* host, char* device, const char* name, int ext,
                                 size_t size, int constant, int global);
char CUDARTAPI __cudaInitModule(void** handle);
void CUDARTAPI __cudaRegisterFunction(void** handle, const char* stub, char* device_function,
                                      const char* name, int thread_limit, uint3* tid, uint3* bid,
                                      dim3* block, dim3* grid, int* warp);
unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                               struct CUstream_st* stream);
cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                 void* stream);
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* kernel, const void* stub);
cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                         size_t shared, cudaStream_t stream);
}
