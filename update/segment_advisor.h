// The segment analysis, once for each kind of Newton-Schulz run instead of once for each matrix.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "weft/update.h"

namespace weft::update {

// What the analysis says about options, remembered. Depends on the options alone. Options must be
// valid. Thread-compatible; references stay valid while it lives.
class SegmentAdvisor {
 public:
  // ChooseSegments() for the options' coefficients, iterations and operand type.
  const std::vector<int>& Choose(const NewtonSchulzOptions& options);

  // One sentence, without a full stop, if the options ask for segments that the analysis finds
  // unsafe: the segments, their condition, and what would be safe. Otherwise empty.
  const std::string& Warning(const NewtonSchulzOptions& options);

 private:
  using Kind = std::tuple<std::vector<Triple>, int, DType>;
  // With the coefficients' name, which the sentence has in it, and the segments asked for.
  using Asked = std::tuple<Kind, std::string, std::vector<int>>;

  static Kind KindOf(const NewtonSchulzOptions& options);
  std::string Examine(const NewtonSchulzOptions& options);

  std::map<Kind, std::vector<int>> chosen_;
  std::map<Asked, std::string> warnings_;
};

}  // namespace weft::update
