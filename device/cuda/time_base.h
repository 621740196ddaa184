// Places in streams as times of the device's Clock.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "device/cuda/mark.h"
#include "device/cuda/mark_pool.h"
#include "weft/clock.h"

namespace weft::device {

// Measures from a mark whose time is known. The library gives distances in fp32 milliseconds, exact
// to the clock's own step for some seconds only, so that the mark is replaced often: the new one's
// time is the old one's plus the distance, moved into the interval of the host's clock in which it
// must have been reached. Errors do not add up, and the two clocks do not drift apart.
// For one thread at a time.
class TimeBase {
 public:
  TimeBase(std::shared_ptr<MarkPool> pool, Clock& clock);
  ~TimeBase();
  TimeBase(const TimeBase&) = delete;
  TimeBase& operator=(const TimeBase&) = delete;

  // Of a timed mark that has been reached. The host's now, when the device gives no answer.
  Nanos TimeOf(const Mark& mark);

 private:
  // A mark, and the host's times between which it was reached.
  struct Place {
    std::unique_ptr<Mark> mark;  // null: there is none
    Nanos first = 0;
    Nanos last = 0;
  };

  // Keeps the old base where a new one cannot be had.
  void Renew();
  Place Measure();

  const std::shared_ptr<MarkPool> pool_;
  Clock& clock_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Mark> base_;
  Nanos base_time_ = 0;
  Nanos tried_ = 0;  // by clock_
};

}  // namespace weft::device
