// The MODEL argument: tensors of one or several safetensors files, or shapes with random weights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/safetensors.h"

namespace weft::tool {

struct ModelTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it
  std::vector<std::int64_t> shape;
  int layer = 0;
  std::int64_t elements = 0;
  // Where its bytes are; null for a shape manifest, whose weights are seeded random values.
  const SafetensorsReader* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

struct Model {
  std::string path;
  std::vector<ModelTensor> tensors;  // by layer, otherwise as in the file
  std::map<std::string, std::string> metadata;
  std::vector<std::unique_ptr<SafetensorsReader>> files;  // what the tensors point into
};

// By the kind of file: *.json with "weight_map" is a safetensors index, with "matrices" a shape
// manifest; anything else a safetensors file. Errors name file and tensor.
absl::StatusOr<Model> LoadModel(const std::string& path);

// {"matrices": [{"name": ..., "shape": [...], "dtype": "F32", "layer": 0, "count": 1}, ...]},
// docs/weft-tool.md. `source` begins every message.
absl::StatusOr<std::vector<ModelTensor>> ParseManifest(std::string_view json,
                                                       const std::string& source);

// One more than the first part of the dotted name that is a number, 0 if there is none: "h.3.mlp.w"
// is of layer 4, "wte.weight" of layer 0.
int LayerOf(std::string_view name);

// "[768, 2304]".
std::string ShapeText(absl::Span<const std::int64_t> shape);

}  // namespace weft::tool
