// What the files of the fake CUDA runtime share.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/fakes/call.h"

namespace weft::fakes {

// Keeps it for cudaGetLastError.
inline cudaError_t Return(int error) {
  if (error != 0 && error != kNotReady) Thread::Current().last_error = error;
  return static_cast<cudaError_t>(error);
}

inline Stream* AsStream(cudaStream_t handle) { return reinterpret_cast<Stream*>(handle); }

static_assert(kNotReady == cudaErrorNotReady);
static_assert(kLaunchTimeout == cudaErrorLaunchTimeout);
static_assert(kInvalidValue == cudaErrorInvalidValue);
static_assert(kMemoryAllocation == cudaErrorMemoryAllocation);
static_assert(kInvalidDevice == cudaErrorInvalidDevice);
static_assert(kInvalidResourceHandle == cudaErrorInvalidResourceHandle);
static_assert(kNotPermitted == cudaErrorNotPermitted);
static_assert(kNotSupported == cudaErrorNotSupported);
static_assert(kCaptureUnsupported == cudaErrorStreamCaptureUnsupported);
static_assert(kCaptureInvalidated == cudaErrorStreamCaptureInvalidated);
static_assert(kCaptureMerge == cudaErrorStreamCaptureMerge);
static_assert(kCaptureUnmatched == cudaErrorStreamCaptureUnmatched);
static_assert(kCaptureUnjoined == cudaErrorStreamCaptureUnjoined);
static_assert(kCaptureIsolation == cudaErrorStreamCaptureIsolation);
static_assert(kCaptureImplicit == cudaErrorStreamCaptureImplicit);
static_assert(kCapturedEvent == cudaErrorCapturedEvent);
static_assert(kCaptureWrongThread == cudaErrorStreamCaptureWrongThread);

}  // namespace weft::fakes
