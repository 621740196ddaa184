// Which rank owns which matrix: balance first, then spread.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/grid.h"

namespace weft::scheduler {

// The w-th place of the spread order: neighbours lie in different inter groups, and each run of
// grid.size() places that starts at a multiple of it visits every rank once.
int SpreadRank(const ProcessGrid& grid, std::int64_t w);

// Longest processing time first: the most costly matrix goes to the rank with the least load so
// far. Ties: lower index first; fewer matrices, then spread order, among ranks. Costs are finite
// and not negative. Returns an owner for each cost.
std::vector<int> AssignByCost(const std::vector<double>& costs, const ProcessGrid& grid);

// Permutes owners among matrices of equal class so that neighbours (classes are in use order) sit
// in different inter groups and, as far as possible, on different nodes. Loads stay as they are.
void SpreadOwners(const std::vector<int>& classes, const ProcessGrid& grid,
                  std::vector<int>& owners);

// Trades owners among matrices of equal class so that those of one layer sit in different inter
// groups, as far as single trades get. Each list has an entry per matrix.
void SpreadLayers(const std::vector<int>& classes, const std::vector<std::int32_t>& layers,
                  const ProcessGrid& grid, std::vector<int>& owners);

}  // namespace weft::scheduler
