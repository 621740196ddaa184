// A point in a stream's work that other streams and the host can wait for.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#pragma GCC visibility push(default)
namespace weft {

// Created by a Device, recorded by one of its Streams. CUDA's semantics:
//  - an event that was never recorded counts as complete: waiting on it is a no-op;
//  - recording it again moves it; whoever began to wait before keeps the earlier point.
// An event recorded in a stream that has failed completes with that stream's error, and a stream
// that waits on it fails with the same error.
// Thread-safe. May be destroyed while recorded or waited on: the recorded work keeps what it needs.
class Event {
 public:
  virtual ~Event() = default;

  // True when the last recorded point has been reached. The error is the recording stream's.
  virtual absl::StatusOr<bool> Query() const = 0;

  // Blocks the host until the last recorded point has been reached. DeadlineExceeded after
  // `timeout`; otherwise the recording stream's status at that point.
  virtual absl::Status Synchronize(absl::Duration timeout) const = 0;
};

}  // namespace weft
#pragma GCC visibility pop
