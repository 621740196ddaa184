// Which rule each tensor of a model takes, and the matrices that are registered for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/weft/gradients.h"
#include "tools/weft/model.h"
#include "tools/weft/options.h"
#include "weft/dtype.h"
#include "weft/runtime.h"

namespace weft::tool {

enum class Route : std::uint8_t { kMuon, kAdamW, kCopied };

// A tensor that is updated, as Weft sees it.
struct RoutedMatrix {
  std::size_t tensor = 0;  // index into Model::tensors
  Route route = Route::kMuon;
  // Muon: the tensor's own shape. AdamW of other than 2-D: all elements in one column, so that
  // shards cut it anywhere.
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::kF32;
};

struct Routing {
  std::vector<RoutedMatrix> matrices;  // in the model's order
  std::vector<std::size_t> copied;     // tensors that keep their bytes
  // Why, with the number of tensors: {"AdamW: not 2-D", 12}, ...
  std::vector<std::pair<std::string, int>> reasons;
};

// A 2-D float tensor takes Muon unless a pattern (POSIX extended, anywhere in the name) matches it;
// other float tensors take AdamW; tensors without a gradient, without elements or of other types
// are copied. InvalidArgument for a pattern that is no regular expression or matches nothing.
absl::StatusOr<Routing> RouteTensors(const Model& model, const Gradients& gradients,
                                     const std::vector<std::string>& adamw_patterns);

// One per routed matrix, in order, without weights.
std::vector<MatrixSpec> SpecsOf(const Model& model, const Routing& routing,
                                const Settings& settings);

}  // namespace weft::tool
