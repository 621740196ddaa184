// A small model with every kind of tensor that `weft run` treats in its own way, its gradients, and
// what the reference makes of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/reference/update.h"
#include "weft/safetensors.h"

namespace weft::testing {

struct StoredTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  std::vector<double> Values() const;  // of a float tensor
  bool operator==(const StoredTensor&) const = default;
};

// Muon: fp32 square, tall, wide, one row, one column; bf16; f16; f64. AdamW: 1-D, scalar, 4-D.
// Copied: integers, truth values, no elements, and "frozen", which has no gradient. Values are
// drawn from the test's seed and `stream`.
std::vector<StoredTensor> SmallModel(std::uint64_t stream);
// Gradients of everything that is updated.
std::vector<StoredTensor> SmallGradients(std::uint64_t stream);

void Store(const std::string& path, const std::vector<StoredTensor>& tensors,
           const std::map<std::string, std::string>& metadata = {});
// By name. Fails the test when the file cannot be read.
std::map<std::string, StoredTensor> Load(const std::string& path);

// Weights after `steps` steps with the same gradient. 2-D tensors take Muon, others AdamW.
std::vector<double> ReferenceSteps(const StoredTensor& weight, const StoredTensor& gradient,
                                   const reference::MuonSettings& muon,
                                   const reference::AdamWSettings& adamw, int steps);

}  // namespace weft::testing
