// The rows of a registered matrix that count, and which parts of it are matrices of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "update/parts.h"
#include "weft/runtime.h"

namespace weft::runtime {

// InvalidArgument, without the matrix's name, for padding_rows, row_blocks and column_blocks that
// do not fit the spec's rows and columns, which are not negative, or its rule.
absl::Status CheckParts(const MatrixSpec& spec);

// The parts that rule and scale take for matrices, without padding. Requires a checked spec, as all
// below.
std::vector<update::Part> PartsOf(const MatrixSpec& spec);

// Whether the matrix as it is stored is the one part, so that equal ones can be a batch.
bool IsOnePart(const MatrixSpec& spec);

// How many of the rows [first, first + rows) are no padding; those come first.
std::int64_t LogicalRows(const MatrixSpec& spec, std::int64_t first, std::int64_t rows);

// A rectangle in which all parts have one shape, which their scale depends on.
struct Piece {
  std::int64_t row = 0;  // in the range of rows that was asked for
  std::int64_t rows = 0;
  std::int64_t col = 0;
  std::int64_t cols = 0;
  std::int64_t part_rows = 0;
  std::int64_t part_cols = 0;
};

// Of the rows [first, first + rows), without padding: pieces without rows are left out.
std::vector<Piece> PiecesOf(const MatrixSpec& spec, std::int64_t first, std::int64_t rows);

}  // namespace weft::runtime
