// Newton-Schulz as its formula reads, in serial float64: what every other path is measured against.
// Shares no code with the library.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace weft::testing {

// (a, b, c) per iteration.
using ReferenceTriples = std::vector<std::array<double, 3>>;

// The direction of one rows x cols matrix `g`, row-major: oriented so that rows <= cols, divided by
// its Frobenius norm, then X <- a X + (b A + c A A) X with A = X X^T for each triple. Zero gives
// zero.
std::vector<double> ReferenceNewtonSchulz(const std::vector<double>& g, std::int64_t rows,
                                          std::int64_t cols, const ReferenceTriples& triples);

// ||x - y||_F / ||y||_F; ||x||_F where y is zero. Lengths must agree.
double RelativeError(const std::vector<float>& x, const std::vector<double>& y);

}  // namespace weft::testing
