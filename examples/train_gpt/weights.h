// Where the trainer keeps its weights: whole on every rank, or cut into rows as a fully sharded
// trainer does. With shards, the model's whole matrices are gathered before a layer uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train_gpt/model.h"
#include "weft/weft.h"

namespace train_gpt {

class Weights {
 public:
  // Collective when sharded: creates a communicator of its own. All arguments outlive it.
  static absl::StatusOr<std::unique_ptr<Weights>> Create(weft::Layout layout, Gpt<float>& model,
                                                         weft::Device& device,
                                                         weft::Transport& transport);

  // What Weft updates: this rank's rows, null where it has none.
  float* Updated(int parameter);
  // Rows by rank; empty when replicated.
  const std::vector<std::int64_t>& ShardRows(int parameter) const { return rows_[parameter]; }

  // Makes the model's matrices of `layer` whole from what every rank has now. Collective, and
  // blocking; does nothing when replicated.
  absl::Status Gather(int layer);

 private:
  Weights(weft::Layout layout, Gpt<float>& model, int rank, int ranks);

  Gpt<float>& model_;
  const bool sharded_;
  std::vector<std::vector<std::int64_t>> rows_;
  std::vector<std::vector<std::int64_t>> bytes_;
  std::vector<std::vector<float>> shards_;
  // Declared after the memory that their work uses, so that they drain first.
  std::unique_ptr<weft::Communicator> communicator_;
  std::unique_ptr<weft::Stream> stream_;
};

}  // namespace train_gpt
