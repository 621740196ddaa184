#include "update/row_norms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/status_macros.h"

namespace weft::update {
namespace {

bool IsTall(const Part& part) { return part.height() > part.cols; }

// By part; -1 for those that are not tall.
std::vector<std::int64_t> VectorsOf(const std::vector<Part>& parts) {
  std::vector<std::int64_t> vectors;
  std::map<std::int64_t, std::int64_t> by_row;  // no two parts begin at one row but side by side
  for (const Part& part : parts) {
    const auto next = static_cast<std::int64_t>(by_row.size());
    vectors.push_back(IsTall(part) ? by_row.emplace(part.row, next).first->second : -1);
  }
  return vectors;
}

}  // namespace

std::int64_t CountNormVectors(const std::vector<Part>& parts) {
  const std::vector<std::int64_t> vectors = VectorsOf(parts);
  return vectors.empty() ? 0 : *std::max_element(vectors.begin(), vectors.end()) + 1;
}

RowNorms::RowNorms(const PeriodicOptions& options, const std::vector<Part>& parts,
                   std::int64_t row_stride, std::int64_t first, std::int64_t rows)
    : eps_(static_cast<float>(options.eps)),
      gamma_(static_cast<float>(options.gamma)),
      unit_(std::ldexp(eps_, 60)),
      row_stride_(row_stride) {
  const std::vector<std::int64_t> vectors = VectorsOf(parts);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Part& part = parts[p];
    PartHere here{part.col, part.cols, IsTall(part), vectors[p], {}};
    for (std::int64_t block = 0; block < part.blocks; ++block) {
      const std::int64_t row = part.row + block * part.every;
      const std::int64_t begin = std::max(row, first);
      const std::int64_t end = std::min(row + part.rows, first + rows);
      if (begin < end) here.blocks.push_back({begin - first, end - begin});
    }
    parts_.push_back(std::move(here));
  }
}

absl::Status RowNorms::Normalize(Math& math, Stream& stream, const PartHere& part, float* update,
                                 float* direction) const {
  for (const Here& block : part.blocks) {
    WEFT_RETURN_IF_ERROR(math.RowNorm(stream, At(update, part, block), part.tall, eps_, gamma_,
                                      At(direction, part, block)));
  }
  return absl::OkStatus();
}

absl::Status RowNorms::Sum(Math& math, Stream& stream, const PartHere& part, float* update,
                           float* sums) const {
  if (part.blocks.empty()) {
    return math.ColumnSquares(stream, At(update, part, {}), unit_, /*add=*/false, sums);
  }
  bool add = false;
  for (const Here& block : part.blocks) {
    WEFT_RETURN_IF_ERROR(
        math.ColumnSquares(stream, At(update, part, block), unit_, std::exchange(add, true), sums));
  }
  return absl::OkStatus();
}

absl::Status RowNorms::Divide(Math& math, Stream& stream, const PartHere& part, float* update,
                              const float* sums, float* direction) const {
  for (const Here& block : part.blocks) {
    WEFT_RETURN_IF_ERROR(math.DivideColumns(
        stream, At(update, part, block), {sums, unit_, eps_, gamma_}, At(direction, part, block)));
  }
  return absl::OkStatus();
}

absl::Status RowNorms::Enqueue(Math& math, Stream& stream, float* update, float* direction,
                               float* workspace) const {
  for (const PartHere& part : parts_) {
    if (!part.tall || part.blocks.size() == 1) {
      WEFT_RETURN_IF_ERROR(Normalize(math, stream, part, update, direction));
      continue;
    }
    WEFT_RETURN_IF_ERROR(Sum(math, stream, part, update, workspace));
    WEFT_RETURN_IF_ERROR(Divide(math, stream, part, update, workspace, direction));
  }
  return absl::OkStatus();
}

absl::Status RowNorms::EnqueueSquares(Math& math, Stream& stream, float* update,
                                      float* squares) const {
  for (const PartHere& part : parts_) {
    if (!part.tall) continue;
    float* const sums = squares + part.vector * row_stride_ + part.col;
    WEFT_RETURN_IF_ERROR(Sum(math, stream, part, update, sums));
  }
  return absl::OkStatus();
}

absl::Status RowNorms::EnqueueBySquares(Math& math, Stream& stream, float* update, float* squares,
                                        float* direction) const {
  for (const PartHere& part : parts_) {
    if (part.tall) {
      const float* const sums = squares + part.vector * row_stride_ + part.col;
      WEFT_RETURN_IF_ERROR(Divide(math, stream, part, update, sums, direction));
    } else {
      WEFT_RETURN_IF_ERROR(Normalize(math, stream, part, update, direction));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::update
