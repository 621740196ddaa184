// The parts of a stored matrix that are matrices of their own to an update rule.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::update {

// One block of the stored matrix, or equal ones below each other with other rows in between.
struct Part {
  std::int64_t row = 0;   // the first of the first block
  std::int64_t rows = 0;  // of one block
  std::int64_t col = 0;
  std::int64_t cols = 0;
  std::int64_t blocks = 1;
  std::int64_t every = 0;  // rows from one block's first to the next's; 0 for one block

  std::int64_t height() const { return rows * blocks; }
  friend bool operator==(const Part&, const Part&) = default;
};

// MatrixSpec's members of these names, where a matrix has them.
struct Cuts {
  std::vector<std::int64_t> row_blocks;
  std::int64_t row_groups = 1;
  std::vector<std::int64_t> column_blocks;
};

// From the top, and side by side from the left. At least one part, which may be empty. `cuts` fit
// the matrix.
std::vector<Part> PartsOf(std::int64_t rows, std::int64_t cols, const Cuts& cuts);

// Parts of one shape that lie at a fixed distance in the stored matrix.
struct EqualParts {
  Part first;
  std::int64_t count = 1;
  std::int64_t distance = 0;  // elements from one part's first element to the next's
};

// All parts of a matrix with `row_stride` elements between rows, in as few batches as taking the
// next part of the shape that fits gives: equal blocks along one side are one. Decided by the parts
// alone, so that every copy of a matrix runs the same batches.
std::vector<EqualParts> BatchesOf(const std::vector<Part>& parts, std::int64_t row_stride);

}  // namespace weft::update
