#include "tools/weft/file_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements

std::int64_t FileBytes(const SafetensorsEntry& entry) {
  return *SafetensorsElementBytes(entry.dtype);
}

absl::Span<std::byte> BytesAt(void* to, std::int64_t offset, std::int64_t count) {
  return {static_cast<std::byte*>(to) + offset, static_cast<std::size_t>(count)};
}

}  // namespace

absl::Status ReadValues(const SafetensorsReader& file, const SafetensorsEntry& entry,
                        std::int64_t first, std::int64_t count, void* to) {
  const FileFloat type = *FileFloatOf(entry.dtype);
  const std::int64_t file_bytes = FileBytes(entry);
  const auto working_bytes = static_cast<std::int64_t>(SizeOf(WorkingType(type)));
  const auto begin = static_cast<std::uint64_t>(first * file_bytes);
  if (type != FileFloat::kF64) {
    return file.Read(entry, begin, BytesAt(to, 0, count * file_bytes));
  }
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(count, kChunk) * file_bytes));
  for (std::int64_t done = 0; done < count; done += kChunk) {
    const std::int64_t now = std::min(count - done, kChunk);
    WEFT_RETURN_IF_ERROR(file.Read(entry, begin + static_cast<std::uint64_t>(done * file_bytes),
                                   BytesAt(chunk.data(), 0, now * file_bytes)));
    FromFile(type, chunk.data(), now, BytesAt(to, done * working_bytes, 0).data());
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueCounts> CountValues(const SafetensorsReader& file,
                                        const SafetensorsEntry& entry) {
  const FileFloat type = *FileFloatOf(entry.dtype);
  const DType working = WorkingType(type);
  const std::int64_t file_bytes = FileBytes(entry);
  const auto total = static_cast<std::int64_t>(entry.end - entry.begin) / file_bytes;
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(total, kChunk) * file_bytes));
  std::vector<float> values(static_cast<std::size_t>(std::min(total, kChunk)));
  ValueCounts counts;
  for (std::int64_t done = 0; done < total; done += kChunk) {
    const std::int64_t now = std::min(total - done, kChunk);
    WEFT_RETURN_IF_ERROR(file.Read(entry, static_cast<std::uint64_t>(done * file_bytes),
                                   BytesAt(chunk.data(), 0, now * file_bytes)));
    FromFile(type, chunk.data(), now, values.data());
    for (std::int64_t i = 0; i < now; ++i) {
      if (std::isfinite(ValueAt(working, values.data(), i))) continue;
      double wide = INFINITY;
      if (type == FileFloat::kF64) std::memcpy(&wide, chunk.data() + i * 8, 8);
      ++(std::isfinite(wide) ? counts.too_large : counts.not_finite);
    }
  }
  return counts;
}

std::int64_t CountNotFinite(FileFloat type, const void* values, std::int64_t count) {
  const DType working = WorkingType(type);
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(ValueAt(working, values, i))) ++found;
  }
  return found;
}

}  // namespace weft::tool
