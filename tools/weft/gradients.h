// Where each rank's gradients come from: a file, the same for every rank and step, or a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/weft/model.h"
#include "weft/dtype.h"
#include "weft/safetensors.h"

namespace weft::tool {

class Gradients {
 public:
  // InvalidArgument for a tensor that the model has not, or has with another shape or dtype.
  static absl::StatusOr<Gradients> FromFile(const std::string& path, const Model& model);
  // Normal values for every tensor; they differ by name, step and rank.
  static Gradients Seeded(std::uint64_t seed);

  // Of a tensor, by its index in the model.
  bool Has(std::size_t tensor) const;
  // InvalidArgument, naming the first tensor that holds values which are not finite, or not in the
  // type they are computed in. Reads the whole file.
  absl::Status CheckValues() const;
  // The whole gradient in the tensor's working type.
  absl::Status Fill(const ModelTensor& model_tensor, std::size_t tensor, std::int64_t step,
                    int rank, void* to) const;

 private:
  std::unique_ptr<SafetensorsReader> file_;       // null when seeded
  std::vector<const SafetensorsEntry*> entries_;  // by tensor of the model
  std::uint64_t seed_ = 0;
};

}  // namespace weft::tool
