#include "runtime/row_blocks.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace weft::runtime {

absl::Status CheckRowBlocks(const MatrixSpec& spec) {
  if (spec.padding_rows < 0 || spec.padding_rows > spec.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("padding_rows is ", spec.padding_rows, ", not 0 to its ", spec.rows, " rows"));
  }
  if (spec.padding_rows > 0 && std::holds_alternative<CustomRule>(spec.rule)) {
    return absl::InvalidArgumentError(
        "padding_rows are for Muon and AdamW: a rule of the caller's gets all rows");
  }
  if (spec.row_blocks.empty()) return absl::OkStatus();
  if (!std::holds_alternative<MuonOptions>(spec.rule)) {
    return absl::InvalidArgumentError("row_blocks are for Muon, and its rule is another");
  }
  const std::int64_t logical = spec.rows - spec.padding_rows;
  std::int64_t sum = 0;
  for (const std::int64_t rows : spec.row_blocks) {
    if (rows < 1) {
      return absl::InvalidArgumentError(absl::StrCat("row_blocks has a block of ", rows, " rows"));
    }
    if (rows > logical - sum) {
      return absl::InvalidArgumentError(
          absl::StrCat("row_blocks add up to more than its ", logical, " rows without padding"));
    }
    sum += rows;
  }
  if (sum == logical) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("row_blocks add up to ", sum, ", not to its ",
                                                 logical, " rows without padding"));
}

std::vector<RowBlock> BlocksOf(const MatrixSpec& spec) {
  if (spec.row_blocks.empty()) return {{0, spec.rows - spec.padding_rows}};
  std::vector<RowBlock> blocks;
  std::int64_t begin = 0;
  for (const std::int64_t rows : spec.row_blocks) {
    blocks.push_back({begin, rows});
    begin += rows;
  }
  return blocks;
}

std::int64_t LogicalRows(const MatrixSpec& spec, std::int64_t first, std::int64_t rows) {
  return std::clamp<std::int64_t>(spec.rows - spec.padding_rows - first, 0, rows);
}

std::int64_t TallBlocks(const MatrixSpec& spec) {
  const std::vector<RowBlock> blocks = BlocksOf(spec);
  return std::count_if(blocks.begin(), blocks.end(),
                       [&](const RowBlock& block) { return block.rows > spec.cols; });
}

std::vector<RowPiece> PiecesOf(const MatrixSpec& spec, std::int64_t first, std::int64_t rows) {
  std::vector<RowPiece> pieces;
  std::int64_t tall = 0;
  for (const RowBlock& block : BlocksOf(spec)) {
    const std::int64_t begin = std::max(block.begin, first);
    const std::int64_t end = std::min(block.begin + block.rows, first + rows);
    if (begin < end) pieces.push_back({begin - first, end - begin, block.rows, tall});
    tall += block.rows > spec.cols;
  }
  return pieces;
}

absl::StatusOr<std::unique_ptr<BlockRuns>> BlockRuns::Create(Device& device,
                                                             const NewtonSchulzOptions& options,
                                                             const MatrixSpec& spec,
                                                             std::int64_t batch) {
  WEFT_CHECK(batch == 1 || (spec.row_blocks.empty() && spec.padding_rows == 0))
      << "matrix '" << spec.name << "' cannot be one of a batch";
  auto result = std::make_unique<BlockRuns>();
  for (const RowBlock& block : BlocksOf(spec)) {
    WEFT_ASSIGN_OR_RETURN(
        auto run, update::NewtonSchulz::Create(device, options, block.rows, spec.cols, batch));
    result->workspace_bytes_ = std::max(result->workspace_bytes_, run->workspace_bytes());
    result->runs_.push_back({std::move(run), block.begin * spec.cols});
  }
  return result;
}

absl::Status BlockRuns::Enqueue(Stream& stream, const float* update, float* direction,
                                void* workspace) {
  for (const Run& run : runs_) {
    WEFT_RETURN_IF_ERROR(
        run.newton_schulz->Enqueue(stream, update + run.begin, direction + run.begin, workspace));
  }
  return absl::OkStatus();
}

}  // namespace weft::runtime
