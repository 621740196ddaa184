// Random values that depend on nothing but what they are for: any element of any tensor can be made
// on any rank, at any time, alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/dtype.h"

namespace weft::tool {

// About normal (the sum of four uniform values), mean 0, standard deviation `deviation`.
class SeededValues {
 public:
  // `purpose` separates uses of one name: "weight", "gradient".
  SeededValues(std::uint64_t seed, std::string_view purpose, std::string_view name,
               std::int64_t step, int rank, double deviation);

  float operator[](std::int64_t index) const;
  // Elements [first, first + count) in `type`.
  void Fill(std::int64_t first, std::int64_t count, DType type, void* to) const;

 private:
  std::uint64_t key_;
  double factor_;
};

}  // namespace weft::tool
