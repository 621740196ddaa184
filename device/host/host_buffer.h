// Host memory, aligned for vector loads.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "weft/buffer.h"

namespace weft::device {

class HostBuffer final : public Buffer {
 public:
  static absl::StatusOr<std::unique_ptr<HostBuffer>> Create(std::size_t bytes);
  ~HostBuffer() override;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  HostBuffer(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  void* data_;
  std::size_t bytes_;
};

}  // namespace weft::device
