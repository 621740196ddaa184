// A CUDA stream, Weft's own or adopted.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/cuda/guards.h"
#include "device/cuda/mark.h"
#include "device/cuda/stream_state.h"
#include "weft/buffer.h"
#include "weft/stream.h"

namespace weft::device {

class CudaDevice;

class CudaStream final : public Stream {
 public:
  enum class Owner { kWeft, kCaller };

  // Takes `handle` over where Weft owns it. `created` not OK: the stream has failed with it.
  CudaStream(CudaDevice& device, std::string name, cudaStream_t handle, Owner owner,
             absl::Status created = absl::OkStatus());
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // The stream of a CUDA device that `stream` is; ends the program where it is none.
  static CudaStream& Of(Stream& stream);

  cudaStream_t handle() const { return handle_; }
  CudaDevice& device() const { return device_; }
  // Outlives the stream: for whoever may have to abort it when it is gone.
  const std::shared_ptr<StreamState>& state() const { return state_; }

  // For whoever enqueues on handle() with CUDA's or NCCL's own calls: calls `enqueue` with the
  // device current, unless the stream has failed (then its status is returned). An error that it
  // returns is the caller's to act on; the stream does not fail with it.
  absl::Status EnqueueNative(const std::function<absl::Status(cudaStream_t)>& enqueue);

  // The end of what has been enqueued. Calls between which nothing was enqueued give the same mark,
  // but for a timed one after one that is not. Also of a stream that has failed, as long as its
  // device has not.
  absl::StatusOr<std::shared_ptr<Mark>> Here(bool timed = false);

  // Later work waits for `mark`, which may be of another stream.
  absl::Status WaitFor(const Mark& mark);

  // As EnqueueNative(), but an error fails the stream: for one call of the runtime, of that name;
  template <typename Call>
  void Issue(std::string_view name, Call call) {
    if (!status().ok()) return;
    const OnDevice on_device(ordinal_);
    const std::int64_t position = Begin();
    if (const cudaError_t error = call(handle_); error != cudaSuccess) {
      (void)FailCall(error, name, position);
    }
  }
  // and for any that return a status.
  template <typename Call>
  void IssueChecked(Call call) {
    if (!status().ok()) return;
    const OnDevice on_device(ordinal_);
    const std::int64_t position = Begin();
    if (absl::Status error = call(handle_); !error.ok()) FailWith(error, position);
  }

  // What the kernels of this stream work in, one after another: memory of the device's
  // workspace_bytes, but at least so many. Allocated by the first call; FailedPrecondition where
  // that would be within a capture.
  static constexpr std::size_t kSmallestWorkspace = std::size_t{64} << 10;
  absl::StatusOr<void*> Workspace();

  // What `work` enqueues here, which the stream then does not run; only device work is allowed. The
  // graph is the caller's. A stream that was not able to record all of it has failed.
  absl::StatusOr<cudaGraph_t> Capture(const std::function<absl::Status(Stream&)>& work);
  // For a graph that goes on to use it.
  std::unique_ptr<Buffer> TakeWorkspace() { return std::move(workspace_); }

  std::string_view name() const override { return state_->name(); }
  // Since the caller may enqueue there, marks of a stream that was asked for it are not shared.
  void* native() const override;
  void Enqueue(Work work) override;
  void EnqueueAlways(std::function<void(const absl::Status&)> work) override;
  void Record(Event& event) override;
  void Wait(const Event& event) override;
  void RecordTime(Nanos* time) override;
  absl::Status Synchronize(absl::Duration timeout) override;
  absl::Status status() const override { return state_->status(); }
  void Abort(absl::Status cause) override;

 private:
  // The position of an item about to be enqueued: what was the end no longer is.
  std::int64_t Begin();
  // "stream intra of CUDA device 0"
  std::string Describe() const;
  void FailWith(const absl::Status& error, std::int64_t position);
  absl::Status FailCall(cudaError_t error, std::string_view name, std::int64_t position);
  // Whether a capture forbids `what`; the stream then fails.
  bool Refuses(std::string_view what);
  absl::StatusOr<bool> HasPassed(const Mark* end, std::int64_t position);

  CudaDevice& device_;
  const int ordinal_;
  const cudaStream_t handle_;
  const Owner owner_;
  const absl::Status created_;
  const std::shared_ptr<StreamState> state_;
  // Others enqueue here as well, unseen.
  mutable std::atomic<bool> shared_;
  std::atomic<bool> capturing_{false};
  std::mutex mutex_;
  std::shared_ptr<Mark> here_;  // null: something was enqueued behind the last one
  std::unique_ptr<Buffer> workspace_;
};

}  // namespace weft::device
