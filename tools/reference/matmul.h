// The one product the reference needs, in double precision.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::reference {

// A * B for row-major A (m x k) and B (k x n). `threads` >= 1 share the rows of the result; each
// element is summed by one thread, over k in ascending order of blocks.
std::vector<double> MatMul(const std::vector<double>& a, const std::vector<double>& b,
                           std::int64_t m, std::int64_t k, std::int64_t n, int threads);

// cols x rows, row-major, of a row-major rows x cols.
std::vector<double> Transpose(const std::vector<double>& a, std::int64_t rows, std::int64_t cols);

}  // namespace weft::reference
