#include "device/host/host_buffer.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft::device {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<HostBuffer>> HostBuffer::Create(std::size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) {
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded >= bytes) data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the host has no memory for a buffer of ", bytes, " bytes"));
    }
  }
  return std::unique_ptr<HostBuffer>(new HostBuffer(data, bytes));
}

HostBuffer::~HostBuffer() { std::free(data_); }

}  // namespace weft::device
