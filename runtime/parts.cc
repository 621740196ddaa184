#include "runtime/parts.h"

#include <algorithm>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace weft::runtime {
namespace {

std::int64_t AllLogicalRows(const MatrixSpec& spec) { return spec.rows - spec.padding_rows; }

// `blocks` of `field` make up `extent`, in words `whole`.
absl::Status CheckBlocks(absl::string_view field, const std::vector<std::int64_t>& blocks,
                         absl::string_view unit, std::int64_t extent, absl::string_view whole) {
  std::int64_t sum = 0;
  for (const std::int64_t size : blocks) {
    if (size < 1) {
      return absl::InvalidArgumentError(absl::StrCat(field, " has a block of ", size, " ", unit));
    }
    if (size > extent - sum) {
      return absl::InvalidArgumentError(absl::StrCat(field, " add up to more than ", whole));
    }
    sum += size;
  }
  if (blocks.empty() || sum == extent) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " add up to ", sum, ", not to ", whole));
}

absl::Status CheckRowBlocks(const MatrixSpec& spec) {
  std::int64_t rows = AllLogicalRows(spec);
  std::string whole = absl::StrCat("its ", rows, " rows without padding");
  if (spec.row_groups < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_groups is ", spec.row_groups, ", not 1 or more"));
  }
  if (spec.row_groups > 1) {
    if (spec.row_blocks.empty()) {
      return absl::InvalidArgumentError("row_groups are given without row_blocks");
    }
    if (rows % spec.row_groups != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("row_groups is ", spec.row_groups, ", which does not divide ", whole));
    }
    rows /= spec.row_groups;
    whole = absl::StrCat("the ", rows, " rows of each of its ", spec.row_groups, " row_groups");
  }
  return CheckBlocks("row_blocks", spec.row_blocks, "rows", rows, whole);
}

// Blocks of one size that follow each other.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t extent = 0;
  std::int64_t block = 0;
};

// Of `blocks`, repeated `times`; no blocks: of the `whole`.
std::vector<Stretch> StretchesOf(std::int64_t whole, const std::vector<std::int64_t>& blocks,
                                 std::int64_t times) {
  if (blocks.empty()) return {{0, whole, whole}};
  std::vector<Stretch> stretches;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < times; ++i) {
    for (const std::int64_t size : blocks) {
      if (stretches.empty() || stretches.back().block != size) {
        stretches.push_back({begin, 0, size});
      }
      stretches.back().extent += size;
      begin += size;
    }
  }
  return stretches;
}

}  // namespace

absl::Status CheckParts(const MatrixSpec& spec) {
  if (spec.padding_rows < 0 || spec.padding_rows > spec.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("padding_rows is ", spec.padding_rows, ", not 0 to its ", spec.rows, " rows"));
  }
  if (spec.padding_rows > 0 && std::holds_alternative<CustomRule>(spec.rule)) {
    return absl::InvalidArgumentError(
        "padding_rows are for Muon and AdamW: a rule of the caller's gets all rows");
  }
  if (!std::holds_alternative<MuonOptions>(spec.rule)) {
    if (!spec.row_blocks.empty()) {
      return absl::InvalidArgumentError("row_blocks are for Muon, and its rule is another");
    }
    if (!spec.column_blocks.empty()) {
      return absl::InvalidArgumentError("column_blocks are for Muon, and its rule is another");
    }
  }
  WEFT_RETURN_IF_ERROR(CheckRowBlocks(spec));
  return CheckBlocks("column_blocks", spec.column_blocks, "columns", spec.cols,
                     absl::StrCat("its ", spec.cols, " columns"));
}

std::vector<update::Part> PartsOf(const MatrixSpec& spec) {
  return update::PartsOf(AllLogicalRows(spec), spec.cols,
                         {spec.row_blocks, spec.row_groups, spec.column_blocks});
}

bool IsOnePart(const MatrixSpec& spec) {
  return spec.padding_rows == 0 && spec.row_blocks.size() < 2 && spec.column_blocks.size() < 2;
}

std::int64_t LogicalRows(const MatrixSpec& spec, std::int64_t first, std::int64_t rows) {
  return std::clamp<std::int64_t>(AllLogicalRows(spec) - first, 0, rows);
}

std::vector<Piece> PiecesOf(const MatrixSpec& spec, std::int64_t first, std::int64_t rows) {
  const std::vector<Stretch> across = StretchesOf(spec.cols, spec.column_blocks, 1);
  std::vector<Piece> pieces;
  for (const Stretch& down : StretchesOf(AllLogicalRows(spec), spec.row_blocks, spec.row_groups)) {
    const std::int64_t begin = std::max(down.begin, first);
    const std::int64_t end = std::min(down.begin + down.extent, first + rows);
    if (begin >= end) continue;
    for (const Stretch& side : across) {
      Piece piece;
      piece.row = begin - first;
      piece.rows = end - begin;
      piece.col = side.begin;
      piece.cols = side.extent;
      piece.part_rows = down.block * spec.row_groups;
      piece.part_cols = side.block;
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace weft::runtime
