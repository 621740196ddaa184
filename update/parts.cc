#include "update/parts.h"

#include <map>
#include <utility>

#include "weft/update.h"

namespace weft {

std::vector<std::int64_t> EqualBlocks(std::int64_t count, std::int64_t size) {
  // A list that no matrix takes: the refusal names it.
  if (count < 1) return {0};
  return std::vector<std::int64_t>(static_cast<std::size_t>(count), size);
}

}  // namespace weft

namespace weft::update {

std::vector<Part> PartsOf(std::int64_t rows, std::int64_t cols, const Cuts& cuts) {
  std::vector<Part> parts;
  Part part;
  // One block in each group leaves nothing in between.
  const bool together = cuts.row_blocks.size() < 2;
  if (!together && cuts.row_groups > 1) {
    part.blocks = cuts.row_groups;
    part.every = rows / cuts.row_groups;
  }
  for (const std::int64_t height : together ? std::vector<std::int64_t>{rows} : cuts.row_blocks) {
    part.rows = height;
    part.col = 0;
    for (const std::int64_t width :
         cuts.column_blocks.empty() ? std::vector<std::int64_t>{cols} : cuts.column_blocks) {
      part.cols = width;
      parts.push_back(part);
      part.col += width;
    }
    part.row += height;
  }
  return parts;
}

std::vector<EqualParts> BatchesOf(const std::vector<Part>& parts, std::int64_t row_stride) {
  struct Open {
    std::size_t batch;
    std::int64_t last;  // where its last part begins
  };
  std::vector<EqualParts> batches;
  std::map<std::pair<std::int64_t, std::int64_t>, Open> open;  // by shape
  for (const Part& part : parts) {
    const std::int64_t begin = part.row * row_stride + part.col;
    const auto [place, is_new] = open.try_emplace({part.rows, part.cols});
    Open& known = place->second;
    if (!is_new) {
      EqualParts& batch = batches[known.batch];
      const std::int64_t distance = begin - known.last;
      if (batch.count == 1 || batch.distance == distance) {
        batch.distance = distance;
        ++batch.count;
        known.last = begin;
        continue;
      }
    }
    known = {batches.size(), begin};
    batches.push_back({part});
  }
  return batches;
}

}  // namespace weft::update
