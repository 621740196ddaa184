// The rows of a stored matrix that count, and which of them make up a matrix of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "update/newton_schulz.h"
#include "weft/device.h"
#include "weft/runtime.h"

namespace weft::runtime {

// InvalidArgument, without the matrix's name, for padding_rows and row_blocks that do not fit the
// spec's rows, which are not negative, or its rule.
absl::Status CheckRowBlocks(const MatrixSpec& spec);

struct RowBlock {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

// The parts that NS and scale take for matrices, by rows of the whole stored matrix: row_blocks, or
// all logical rows. At least one, which may be empty. Requires a checked spec, as all below.
std::vector<RowBlock> BlocksOf(const MatrixSpec& spec);

// How many of the rows [first, first + rows) are no padding; those come first.
std::int64_t LogicalRows(const MatrixSpec& spec, std::int64_t first, std::int64_t rows);

// What of a block lies in a range of rows.
struct RowPiece {
  std::int64_t begin = 0;  // in the range
  std::int64_t rows = 0;
  std::int64_t block_rows = 0;
  std::int64_t tall_before = 0;  // blocks before it that are taller than wide
};

// Blocks with more rows than columns: the rows that their row norm is of are stored as columns.
std::int64_t TallBlocks(const MatrixSpec& spec);

// Of the rows [first, first + rows): pieces without rows are left out.
std::vector<RowPiece> PiecesOf(const MatrixSpec& spec, std::int64_t first, std::int64_t rows);

// NS of each block of a matrix, one after another, or of a batch of matrices without blocks and
// padding. Runs and workspaces as update::NewtonSchulz.
class BlockRuns {
 public:
  static absl::StatusOr<std::unique_ptr<BlockRuns>> Create(Device& device,
                                                           const NewtonSchulzOptions& options,
                                                           const MatrixSpec& spec,
                                                           std::int64_t batch);

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  // direction = NS(update) for all rows but padding, which is neither read nor written; both fp32,
  // the stored rows x cols, those of a batch one behind the other.
  absl::Status Enqueue(Stream& stream, const float* update, float* direction, void* workspace);

 private:
  struct Run {
    std::unique_ptr<update::NewtonSchulz> newton_schulz;
    std::int64_t begin;  // elements before the block
  };

  std::vector<Run> runs_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace weft::runtime
