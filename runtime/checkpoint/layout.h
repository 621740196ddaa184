// A model's state as tensors that know nothing of grids and layouts, and which rows of them each
// rank of a plan holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/plan.h"
#include "weft/runtime.h"

namespace weft::runtime {

enum class TensorKind : std::uint8_t {
  kMomentum,      // Muon
  kFirstMoment,   // AdamW
  kSecondMoment,  // AdamW, behind the first in memory
  kCustomState,
  kWeight
};

struct Tensor {
  std::string name;
  std::int32_t matrix = 0;
  TensorKind kind = TensorKind::kMomentum;
  std::string dtype;                // as in safetensors
  std::vector<std::int64_t> shape;  // logical
  std::int64_t row_bytes = 0;

  std::int64_t rows() const { return shape[0]; }
};

struct RowRange {
  std::int64_t first = 0;
  std::int64_t rows = 0;

  std::int64_t end() const { return first + rows; }
};

// What is carried of the model, in order of registration: the same for every plan of it. `weights`:
// besides those of layout owned.
std::vector<Tensor> TensorsOf(const std::vector<MatrixSpec>& specs, CarriedWeights weights);

// Who holds what.
class StateLayout {
 public:
  // Both must outlive it.
  StateLayout(const Plan& plan, const std::vector<MatrixSpec>& specs);

  // The rows of `tensor` in memory on `rank`, without padding.
  RowRange Held(const Tensor& tensor, int rank) const;
  // Those that `rank` is to save: every row on exactly one rank, of those that hold it.
  RowRange Written(const Tensor& tensor, int rank) const;
  // Rows of the matrix's state in memory on `rank`, padding included.
  std::int64_t StoredStateRows(std::int32_t matrix, int rank) const {
    return state_rows_[rank][matrix];
  }

 private:
  // Stored rows, padding included.
  RowRange Stored(const Tensor& tensor, int rank) const;

  const Plan& plan_;
  const std::vector<MatrixSpec>& specs_;
  std::vector<std::vector<std::int64_t>> state_rows_;  // by rank and matrix
};

}  // namespace weft::runtime
