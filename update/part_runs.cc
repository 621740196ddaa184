#include "update/part_runs.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace weft::update {
namespace {

// Packed parts stand before a run's own workspace, which is to be aligned.
std::size_t PackedBytes(const EqualParts& parts) {
  constexpr std::size_t kAlignment = 64;
  if (parts.first.blocks == 1) return 0;
  const std::size_t bytes = static_cast<std::size_t>(parts.count * parts.first.height()) *
                            static_cast<std::size_t>(parts.first.cols) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

absl::Status PartRuns::Add(const NewtonSchulzOptions& options, const EqualParts& parts) {
  Run run;
  WEFT_ASSIGN_OR_RETURN(
      run.newton_schulz,
      NewtonSchulz::Create(*device_, options, parts.first.height(), parts.first.cols, parts.count));
  // Its operands may be null, and the places of its parts in null are no pointers.
  if (parts.first.height() == 0 || parts.first.cols == 0) {
    return absl::OkStatus();
  }
  run.parts = parts;
  workspace_bytes_ =
      std::max(workspace_bytes_, PackedBytes(parts) + run.newton_schulz->workspace_bytes());
  runs_.push_back(std::move(run));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PartRuns>> PartRuns::Create(Device& device,
                                                           const NewtonSchulzOptions& options,
                                                           const std::vector<Part>& parts,
                                                           std::int64_t row_stride) {
  auto result = std::make_unique<PartRuns>();
  result->device_ = &device;
  result->row_stride_ = row_stride;
  for (const EqualParts& equal : BatchesOf(parts, row_stride)) {
    WEFT_RETURN_IF_ERROR(result->Add(options, equal));
  }
  return result;
}

absl::StatusOr<std::unique_ptr<PartRuns>> PartRuns::OfWholes(Device& device,
                                                             const NewtonSchulzOptions& options,
                                                             std::int64_t rows, std::int64_t cols,
                                                             std::int64_t batch) {
  auto result = std::make_unique<PartRuns>();
  result->device_ = &device;
  result->row_stride_ = cols;
  EqualParts wholes;
  wholes.first.rows = rows;
  wholes.first.cols = cols;
  wholes.count = batch;
  wholes.distance = rows * cols;
  WEFT_RETURN_IF_ERROR(result->Add(options, wholes));
  return result;
}

absl::Status PartRuns::EnqueueInPlace(Stream& stream, const Run& run, const float* update,
                                      float* direction, void* workspace) const {
  const Part& first = run.parts.first;
  const std::int64_t begin = first.row * row_stride_ + first.col;
  Matrix from{const_cast<float*>(update) + begin,
              DType::kF32,
              first.rows,
              first.cols,
              row_stride_,
              run.parts.count,
              run.parts.distance};
  Matrix to = from;
  to.data = direction + begin;
  return run.newton_schulz->Enqueue(stream, from, to, workspace);
}

absl::Status PartRuns::EnqueuePacked(Stream& stream, const Run& run, const float* update,
                                     float* direction, void* workspace) const {
  const Part& first = run.parts.first;
  auto* const packed = static_cast<float*>(workspace);
  void* const rest = static_cast<std::byte*>(workspace) + PackedBytes(run.parts);
  const auto stored = [&](const float* matrix, std::int64_t i) {
    const std::int64_t begin = first.row * row_stride_ + first.col + i * run.parts.distance;
    return Matrix{const_cast<float*>(matrix) + begin,
                  DType::kF32,
                  first.rows,
                  first.cols,
                  row_stride_,
                  first.blocks,
                  first.every * row_stride_};
  };
  const auto in_one_piece = [&](std::int64_t i) {
    return Matrix::Dense(packed + i * first.height() * first.cols, DType::kF32, first.rows,
                         first.cols, first.blocks);
  };
  Math& math = device_->math();
  for (std::int64_t i = 0; i < run.parts.count; ++i) {
    WEFT_RETURN_IF_ERROR(math.Convert(stream, stored(update, i), false, in_one_piece(i)));
  }
  WEFT_RETURN_IF_ERROR(run.newton_schulz->Enqueue(stream, packed, packed, rest));
  for (std::int64_t i = 0; i < run.parts.count; ++i) {
    WEFT_RETURN_IF_ERROR(math.Convert(stream, in_one_piece(i), false, stored(direction, i)));
  }
  return absl::OkStatus();
}

absl::Status PartRuns::Enqueue(Stream& stream, const float* update, float* direction,
                               void* workspace) {
  for (const Run& run : runs_) {
    WEFT_RETURN_IF_ERROR(run.parts.first.blocks == 1
                             ? EnqueueInPlace(stream, run, update, direction, workspace)
                             : EnqueuePacked(stream, run, update, direction, workspace));
  }
  return absl::OkStatus();
}

}  // namespace weft::update
