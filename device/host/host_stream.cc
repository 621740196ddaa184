#include "device/host/host_stream.h"

#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/check.h"
#include "base/deadline.h"

namespace weft::device {
namespace {

// A thread of normal priority that wakes up on a busy core may wait for the end of the running
// thread's slice, some milliseconds: more than most collectives take.
constexpr int kHighNice = -10;
constexpr int kRaisedNice = -5;

}  // namespace

HostStream::HostStream(std::string name, int threads, StreamPriority priority, Clock& clock)
    : name_(std::move(name)),
      clock_(clock),
      worker_([this, threads, priority] { RunWorker(threads, priority); }) {}

HostStream::~HostStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  work_arrived_.notify_one();
  worker_.join();
}

void HostStream::Push(Item item) {
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(item));
    ++pushed_;
    wake = std::exchange(idle_, false);
  }
  // A busy worker finds the item by itself, which spares most calls the system call.
  if (wake) work_arrived_.notify_one();
}

void HostStream::Enqueue(Work work) { Push(Item(std::in_place_type<Work>, std::move(work))); }

void HostStream::EnqueueAlways(std::function<void(const absl::Status&)> work) {
  Push(Always{std::move(work)});
}

void HostStream::Record(Event& event) {
  auto* host_event = dynamic_cast<HostEvent*>(&event);
  WEFT_CHECK(host_event != nullptr) << "an event of another device was recorded in " << name_;
  Push(Reach{host_event->Move()});
}

void HostStream::Wait(const Event& event) {
  const auto* host_event = dynamic_cast<const HostEvent*>(&event);
  WEFT_CHECK(host_event != nullptr) << "an event of another device is awaited in " << name_;
  if (auto point = host_event->point()) Push(Await{std::move(point)});
}

void HostStream::RecordTime(Nanos* time) { Push(Time{time}); }

absl::Status HostStream::Synchronize(absl::Duration timeout) {
  const Nanos deadline = base::DeadlineAfter(clock_, timeout);
  std::unique_lock<std::mutex> lock(mutex_);
  const std::int64_t target = pushed_;
  ++synchronizing_;
  bool in_time = true;
  while (finished_ < target && in_time) {
    if (deadline == base::kNoDeadline) {
      progress_.wait(lock);
    } else {
      in_time = clock_.WaitUntil(progress_, lock, deadline);
    }
  }
  --synchronizing_;
  if (finished_ < target) {
    return absl::DeadlineExceededError(
        absl::StrCat("stream ", name_, " did not finish within ", absl::FormatDuration(timeout)));
  }
  return status_;
}

absl::Status HostStream::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

bool HostStream::Fail(absl::Status cause) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return false;
  status_ = std::move(cause);
  failed_.store(true, std::memory_order_release);
  return true;
}

void HostStream::Abort(absl::Status cause) {
  WEFT_CHECK(!cause.ok()) << "stream " << name_ << " aborted with an OK status";
  if (!Fail(std::move(cause))) return;
  std::shared_ptr<Point> awaited;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    awaited = awaited_;
  }
  if (awaited != nullptr) awaited->WakeWaiters();
}

void HostStream::RunWorker(int threads, StreamPriority priority) {
  if (priority != StreamPriority::kNormal) {
    // Linux keeps niceness per thread. Without the right to raise it, things are as they were.
    (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()),
                      priority == StreamPriority::kHigh ? kHighNice : kRaisedNice);
  }
  base::NameThread(name_);
  omp_set_num_threads(threads);
  std::deque<Item> items;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      while (queue_.empty()) {
        if (closing_) return;
        idle_ = true;
        work_arrived_.wait(lock);
        idle_ = false;
      }
      items.swap(queue_);
    }
    while (!items.empty()) {
      Run(items.front());
      // What the item owned is gone before anyone can see it finished.
      items.pop_front();
      bool notify = false;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++finished_;
        notify = synchronizing_ > 0;
      }
      if (notify) progress_.notify_all();
    }
  }
}

template <typename Call>
void HostStream::RunGuarded(Call call) {
  absl::Status status;
  try {
    status = call();
  } catch (const std::exception& error) {
    status =
        absl::InternalError(absl::StrCat("an item of stream ", name_, " threw: ", error.what()));
  } catch (...) {
    status = absl::InternalError(
        absl::StrCat("an item of stream ", name_, " threw something that is no std::exception"));
  }
  if (!status.ok()) Fail(std::move(status));
}

void HostStream::Run(Item& item) {
  if (auto* work = std::get_if<Work>(&item)) {
    if (failed()) return;
    RunGuarded([&] { return (*work)(); });
  } else if (auto* always = std::get_if<Always>(&item)) {
    RunGuarded([&] {
      always->work(status());
      return absl::OkStatus();
    });
  } else if (auto* reach = std::get_if<Reach>(&item)) {
    reach->point->Complete(status());
  } else if (auto* await = std::get_if<Await>(&item)) {
    AwaitPoint(await->point);
  } else {
    *std::get<Time>(item).time = clock_.Now();
  }
}

void HostStream::AwaitPoint(const std::shared_ptr<Point>& point) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return;
    awaited_ = point;
  }
  const bool reached = point->WaitUnless([this] { return failed(); });
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    awaited_ = nullptr;
  }
  if (!reached) return;
  if (absl::Status status = point->status(); !status.ok()) Fail(std::move(status));
}

}  // namespace weft::device
