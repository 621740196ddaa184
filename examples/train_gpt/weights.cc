#include "train_gpt/weights.h"

#include <algorithm>
#include <numeric>

namespace train_gpt {

Weights::Weights(weft::Layout layout, Gpt<float>& model, int rank, int ranks)
    : model_(model), sharded_(layout == weft::Layout::kSharded) {
  rows_.resize(model.parameters().size());
  if (!sharded_) return;
  for (std::size_t p = 0; p < model.parameters().size(); ++p) {
    const Parameter& parameter = model.parameters()[p];
    rows_[p] = weft::DefaultShardRows(parameter.rows, ranks);
    bytes_.emplace_back();
    for (const std::int64_t rows : rows_[p]) {
      bytes_[p].push_back(rows * parameter.cols * static_cast<std::int64_t>(sizeof(float)));
    }
    const std::int64_t begin = std::accumulate(rows_[p].begin(), rows_[p].begin() + rank, 0L);
    const auto* whole = model.weight(static_cast<int>(p)).data();
    shards_.emplace_back(whole + begin * parameter.cols,
                         whole + (begin + rows_[p][rank]) * parameter.cols);
  }
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Create(weft::Layout layout, Gpt<float>& model,
                                                         weft::Device& device,
                                                         weft::Transport& transport) {
  auto weights =
      std::unique_ptr<Weights>(new Weights(layout, model, transport.rank(), transport.size()));
  if (!weights->sharded_) return weights;
  std::vector<int> world(transport.size());
  std::iota(world.begin(), world.end(), 0);
  auto communicator = transport.CreateCommunicator("train_gpt weights", std::move(world));
  if (!communicator.ok()) return communicator.status();
  weights->communicator_ = *std::move(communicator);
  weights->stream_ = device.CreateStream("weights");
  return weights;
}

float* Weights::Updated(int parameter) {
  if (!sharded_) return model_.weight(parameter).data();
  return shards_[parameter].empty() ? nullptr : shards_[parameter].data();
}

absl::Status Weights::Gather(int layer) {
  if (!sharded_) return absl::OkStatus();
  for (std::size_t p = 0; p < model_.parameters().size(); ++p) {
    const Parameter& parameter = model_.parameters()[p];
    if (parameter.layer != layer) continue;
    const absl::Status status = communicator_->AllGatherV(
        *stream_, shards_[p].data(), model_.weight(static_cast<int>(p)).data(), bytes_[p],
        weft::OpTag{parameter.name, "gather weight"});
    if (!status.ok()) return status;
  }
  // A failed peer or the transport's deadline ends the wait.
  return stream_->Synchronize(absl::InfiniteDuration());
}

}  // namespace train_gpt
