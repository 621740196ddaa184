#include "device/host/host_device.h"

#include <sched.h>

#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/host/host_buffer.h"
#include "device/host/host_event.h"
#include "device/host/host_stream.h"
#include "device/host/matmul.h"

namespace weft::device {
namespace {

// As the kernel calls the first CPU; "CPU" where it does not.
std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kKey = "model name";
    if (line.rfind(kKey, 0) != 0) continue;
    const std::size_t begin = line.find_first_not_of(" \t:", kKey.size());
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "CPU";
}

// That this process may run on; 0 where it is not known.
int UsableCpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

HostDevice::HostDevice(const HostDeviceOptions& options)
    : threads_(options.threads),
      clock_(options.clock != nullptr ? *options.clock : Clock::Steady()),
      math_(MatMulOptions{.threads = options.threads}) {}

DeviceIdentity HostDevice::identity() const {
  return {absl::StrCat(CpuName(), ", ", UsableCpus(), " CPUs"), MatMulLibrary(), threads_};
}

std::unique_ptr<Stream> HostDevice::CreateStream(std::string name, StreamPriority priority) {
  return std::make_unique<HostStream>(std::move(name), threads_, priority, clock_);
}

std::unique_ptr<Event> HostDevice::CreateEvent() { return std::make_unique<HostEvent>(clock_); }

absl::StatusOr<std::unique_ptr<Stream>> HostDevice::AdoptStream(void*, std::string name) {
  return absl::InvalidArgumentError(
      absl::StrCat("the host has no streams of its own to adopt one as '", name, "'"));
}

absl::StatusOr<std::unique_ptr<Event>> HostDevice::AdoptEvent(void*) {
  return absl::InvalidArgumentError("the host has no events of its own to adopt");
}

absl::StatusOr<std::unique_ptr<Buffer>> HostDevice::Allocate(std::size_t bytes) {
  return HostBuffer::Create(bytes);
}

absl::StatusOr<std::unique_ptr<Buffer>> HostDevice::AllocateHost(std::size_t bytes) {
  return HostBuffer::Create(bytes);
}

namespace {

class HostReplay final : public Replay {
 public:
  explicit HostReplay(std::function<absl::Status(Stream&)> work) : work_(std::move(work)) {}
  absl::Status Enqueue(Stream& stream) override { return work_(stream); }

 private:
  const std::function<absl::Status(Stream&)> work_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Replay>> HostDevice::Record(
    std::function<absl::Status(Stream&)> work) {
  return std::make_unique<HostReplay>(std::move(work));
}

void HostDevice::Copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  stream.Enqueue([to, from, bytes] {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  });
}

absl::Status HostDevice::CopyNow(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

void HostDevice::Clear(Stream& stream, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  stream.Enqueue([to, bytes] {
    std::memset(to, 0, bytes);
    return absl::OkStatus();
  });
}

}  // namespace weft::device
