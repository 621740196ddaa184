// The direction of periodic Muon between refreshes: gamma times the row norm of a stored matrix's
// parts (docs/update-rules.md), each by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "update/parts.h"
#include "weft/device.h"
#include "weft/update.h"

namespace weft::update {

// Of a tall part the rows that are normalized are stored as columns. Where rows of the matrix lie
// on several ranks, their squares are summed up in so many vectors as long as the matrix is wide;
// tall parts that are side by side share one.
std::int64_t CountNormVectors(const std::vector<Part>& parts);

class RowNorms {
 public:
  // Of the rows [first, first + rows) of the matrix whose parts these are, `row_stride` elements
  // between rows. Memory below is fp32 and begins with row `first`; calls enqueue and return.
  RowNorms(const PeriodicOptions& options, const std::vector<Part>& parts, std::int64_t row_stride,
           std::int64_t first, std::int64_t rows);

  // All rows of each tall part are here. `workspace` has row_stride elements.
  absl::Status Enqueue(Math& math, Stream& stream, float* update, float* direction,
                       float* workspace) const;

  // Else: what these rows add to `squares`, CountNormVectors() x row_stride elements, zeros where
  // no tall part is, in a unit that keeps them inside fp32's range; and, with the sums over all
  // rows, their direction.
  absl::Status EnqueueSquares(Math& math, Stream& stream, float* update, float* squares) const;
  absl::Status EnqueueBySquares(Math& math, Stream& stream, float* update, float* squares,
                                float* direction) const;

 private:
  // The rows of a part that are here: those of its blocks, without empty ones.
  struct Here {
    std::int64_t row = 0;  // from `first` on
    std::int64_t rows = 0;
  };
  struct PartHere {
    std::int64_t col = 0;
    std::int64_t cols = 0;
    bool tall = false;
    std::int64_t vector = -1;  // a tall one's
    std::vector<Here> blocks;
  };

  Matrix At(float* data, const PartHere& part, const Here& block) const {
    return {data + block.row * row_stride_ + part.col, DType::kF32, block.rows, part.cols,
            row_stride_};
  }
  absl::Status Divide(Math& math, Stream& stream, const PartHere& part, float* update,
                      const float* sums, float* direction) const;
  absl::Status Sum(Math& math, Stream& stream, const PartHere& part, float* update,
                   float* sums) const;
  // Rows of a part that has them all, if it is tall, in one block.
  absl::Status Normalize(Math& math, Stream& stream, const PartHere& part, float* update,
                         float* direction) const;

  float eps_;
  float gamma_;
  // Squares of norms of eps are then 2^-120, and norms up to 2^123 times eps have squares that a
  // sum over ranks holds.
  float unit_;
  std::int64_t row_stride_;
  std::vector<PartHere> parts_;
};

}  // namespace weft::update
