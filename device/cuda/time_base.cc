#include "device/cuda/time_base.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "device/cuda/guards.h"

namespace weft::device {
namespace {

// fp32 milliseconds are exact to 61 ns below it.
constexpr Nanos kRenewAfter = 1'000'000'000;
// How long a try may take; the internal stream is idle, but the device may be busy. More at first,
// since without a base times are those of whoever looks on.
constexpr Nanos kPatience = 2'000'000;
constexpr Nanos kFirstPatience = 100'000'000;
// The tightest of so many tries counts, unless one is as tight as they get.
constexpr int kTries = 8;
constexpr Nanos kTight = 10'000;

// Whether the distance could be had.
bool Distance(const Mark& from, const Mark& to, Nanos* distance) {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, from.event(), to.event()) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  *distance = std::llround(static_cast<double>(milliseconds) * 1e6);
  return true;
}

}  // namespace

TimeBase::TimeBase(std::shared_ptr<MarkPool> pool, Clock& clock)
    : pool_(std::move(pool)), clock_(clock) {
  // While the device is idle, as far as it is up to Weft.
  Renew();
}

TimeBase::~TimeBase() {
  if (stream_ == nullptr || !pool_->failure().ok()) return;
  const OnDevice on_device(pool_->ordinal());
  (void)cudaStreamDestroy(stream_);
}

Nanos TimeBase::TimeOf(const Mark& mark) {
  if (base_ == nullptr || clock_.Now() - tried_ > kRenewAfter) Renew();
  Nanos distance = 0;
  if (base_ == nullptr || !Distance(*base_, mark, &distance)) return clock_.Now();
  return base_time_ + distance;
}

void TimeBase::Renew() {
  const OnDevice on_device(pool_->ordinal());
  tried_ = clock_.Now();
  if (stream_ == nullptr &&
      cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) {
    (void)cudaGetLastError();
    stream_ = nullptr;
    return;
  }
  Place best;
  for (int i = 0; i < kTries; ++i) {
    Place place = Measure();
    if (place.mark == nullptr) break;
    if (best.mark == nullptr || place.last - place.first < best.last - best.first) {
      best = std::move(place);
    }
    if (best.last - best.first < kTight) break;
  }
  if (best.mark == nullptr) return;
  // The earliest that it can be: what is measured from it is then never in the host's future.
  Nanos time = best.first;
  Nanos distance = 0;
  if (base_ != nullptr && Distance(*base_, *best.mark, &distance)) {
    time = std::clamp(base_time_ + distance, best.first, best.last);
  }
  base_ = std::move(best.mark);
  base_time_ = time;
}

TimeBase::Place TimeBase::Measure() {
  const absl::StatusOr<cudaEvent_t> event = pool_->Take(/*timed=*/true);
  if (!event.ok()) return {};
  Place place;
  auto mark = std::make_unique<Mark>(pool_, *event, /*timed=*/true);
  Clock& steady = Clock::Steady();
  const Nanos started = steady.Now();
  place.first = clock_.Now();
  if (cudaEventRecord(*event, stream_) != cudaSuccess) {
    (void)cudaGetLastError();
    return {};
  }
  const Nanos patience = base_ == nullptr ? kFirstPatience : kPatience;
  // Without a pause: the interval is what matters.
  for (;;) {
    const absl::StatusOr<bool> reached = mark->Reached();
    place.last = clock_.Now();
    if (!reached.ok() || (!*reached && steady.Now() - started > patience)) return {};
    if (*reached) break;
    std::this_thread::yield();
  }
  place.mark = std::move(mark);
  return place;
}

}  // namespace weft::device
