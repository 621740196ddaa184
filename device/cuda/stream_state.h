// What is known of a stream on the host: its items by position and its first failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "weft/stream.h"

namespace weft::device {

// Thread-safe. Shared by the stream, the events recorded in it and what looks on; host functions
// hold its address, since the stream drains before it ends.
class StreamState {
 public:
  explicit StreamState(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // The position of a new item.
  std::int64_t Next() { return ++position_; }
  // Of the last item.
  std::int64_t position() const { return position_; }

  absl::Status status() const;
  // As an event at `position` carries it: failures of items behind it are not its own.
  absl::Status StatusAt(std::int64_t position) const;
  bool aborted() const { return aborted_; }

  // The item at `position` has failed. The first failure wins.
  void Fail(absl::Status cause, std::int64_t position);
  void Abort(absl::Status cause);

  // Calls what the caller gave; what it throws is its error.
  template <typename Call>
  absl::Status Guarded(Call call) const;

  // Host functions run in the order in which they are pushed. RunHostWork() runs the next one
  // unless the stream has failed before it.
  void PushHostWork(Stream::Work work, std::int64_t position);
  void RunHostWork();
  // The last pushed one is not going to run.
  void DropHostWork();

 private:
  struct HostWork {
    Stream::Work work;
    std::int64_t position;
  };
  absl::Status Thrown(const char* what) const;

  const std::string name_;
  std::atomic<std::int64_t> position_{0};
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  absl::Status status_;
  std::int64_t failed_at_ = 0;
  std::deque<HostWork> host_work_;
};

template <typename Call>
absl::Status StreamState::Guarded(Call call) const {
  try {
    return call();
  } catch (const std::exception& error) {
    return Thrown(error.what());
  } catch (...) {
    return Thrown(nullptr);
  }
}

}  // namespace weft::device
