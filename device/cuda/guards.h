// What a thread of the host sets for the duration of a call.
#pragma once

#include <cuda_runtime_api.h>

namespace weft::device {

// Makes a device the thread's current one; it may be using several.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = ordinal;
    changed_ = before_ != ordinal;
    // Where this fails, so does the call that follows, with the same error.
    if (changed_) (void)cudaSetDevice(ordinal);
  }
  ~OnDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Lets the thread query events and allocate while another one captures a graph in the global mode,
// which would otherwise end that capture.
class BesideCaptures {
 public:
  BesideCaptures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~BesideCaptures() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace weft::device
