#include "device/cuda/cuda_buffer.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "device/cuda/guards.h"
#include "device/cuda/mark.h"
#include "device/cuda/poll.h"
#include "device/cuda/status.h"

namespace weft::device {
namespace {

// How long a device that ends waits for its memory to be given back. A kernel that hangs can be in
// the way.
constexpr absl::Duration kPatience = absl::Seconds(1);

// Of the arguments, only a size that is beyond all memory can be invalid.
bool NoRoom(cudaError_t error) {
  return error == cudaErrorMemoryAllocation || error == cudaErrorInvalidValue;
}

}  // namespace

class CudaMemory::DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(std::shared_ptr<CudaMemory> memory, void* data, std::size_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}
  ~DeviceBuffer() override { memory_->Free(data_); }
  void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<CudaMemory> memory_;
  void* const data_;
  const std::size_t bytes_;
};

class CudaMemory::HostBuffer final : public Buffer {
 public:
  HostBuffer(int ordinal, void* data, std::size_t bytes)
      : ordinal_(ordinal), data_(data), bytes_(bytes) {}
  ~HostBuffer() override {
    if (data_ == nullptr) return;
    // It may wait for all work of the device that is current, which is not to be another rank's.
    const OnDevice on_device(ordinal_);
    const BesideCaptures beside_captures;
    (void)cudaFreeHost(data_);
  }
  void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const int ordinal_;
  void* const data_;
  const std::size_t bytes_;
};

absl::StatusOr<std::shared_ptr<CudaMemory>> CudaMemory::Create(std::shared_ptr<MarkPool> pool,
                                                               Clock& clock) {
  const OnDevice on_device(pool->ordinal());
  cudaMemPool_t memory = nullptr;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaDeviceGetDefaultMemPool(&memory, pool->ordinal()),
                                  "cudaDeviceGetDefaultMemPool", pool->name()));
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemPoolSetAttribute(memory, cudaMemPoolAttrReleaseThreshold, &keep),
                 "cudaMemPoolSetAttribute", pool->name()));
  cudaStream_t streams[2] = {};
  for (cudaStream_t& stream : streams) {
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                    "cudaStreamCreateWithFlags", pool->name()));
  }
  return std::shared_ptr<CudaMemory>(
      new CudaMemory(std::move(pool), clock, streams[0], streams[1]));
}

CudaMemory::~CudaMemory() {
  if (!pool_->failure().ok()) return;
  const OnDevice on_device(pool_->ordinal());
  (void)Await(allocations_, kPatience);
  (void)cudaStreamDestroy(allocations_);
  (void)cudaStreamDestroy(copies_);
}

absl::Status CudaMemory::Await(cudaStream_t stream, absl::Duration timeout) {
  WEFT_ASSIGN_OR_RETURN(cudaEvent_t event, pool_->Take(/*timed=*/false));
  const Mark end(pool_, event, /*timed=*/false);
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaEventRecord(event, stream), "cudaEventRecord", pool_->name()));
  return Poll(clock_, base::DeadlineAfter(clock_, timeout), [&] { return end.Reached(); }).status();
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaMemory::Allocate(std::size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) {
    const OnDevice on_device(pool_->ordinal());
    const BesideCaptures beside_captures;
    const cudaError_t error = cudaMallocAsync(&data, bytes, allocations_);
    if (NoRoom(error)) {
      (void)cudaGetLastError();
      return absl::ResourceExhaustedError(
          absl::StrCat(pool_->name(), " has no memory for a buffer of ", bytes, " bytes"));
    }
    WEFT_RETURN_IF_ERROR(CudaStatus(error, "cudaMallocAsync", pool_->name()));
    if (absl::Status status = Await(allocations_, absl::InfiniteDuration()); !status.ok()) {
      Free(data);
      return status;
    }
  }
  return std::make_unique<DeviceBuffer>(shared_from_this(), data, bytes);
}

void CudaMemory::Free(void* data) {
  if (data == nullptr || !pool_->failure().ok()) return;
  const OnDevice on_device(pool_->ordinal());
  const BesideCaptures beside_captures;
  (void)cudaFreeAsync(data, allocations_);
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaMemory::AllocateHost(std::size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) {
    const OnDevice on_device(pool_->ordinal());
    const BesideCaptures beside_captures;
    const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
    if (NoRoom(error)) {
      (void)cudaGetLastError();
      return absl::ResourceExhaustedError(
          absl::StrCat("the host has no page-locked memory for a buffer of ", bytes, " bytes"));
    }
    WEFT_RETURN_IF_ERROR(CudaStatus(error, "cudaHostAlloc", pool_->name()));
  }
  return std::make_unique<HostBuffer>(pool_->ordinal(), data, bytes);
}

absl::Status CudaMemory::CopyNow(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const OnDevice on_device(pool_->ordinal());
  const BesideCaptures beside_captures;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies_),
                                  "cudaMemcpyAsync", pool_->name()));
  return Await(copies_, absl::InfiniteDuration());
}

}  // namespace weft::device
