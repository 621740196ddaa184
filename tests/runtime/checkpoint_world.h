// Small models that train on any grid, strategy and layout, and what of them a checkpoint has to
// carry, read from memory without the code that saves and loads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/pinned.h"
#include "tests/support/world.h"
#include "weft/runtime.h"

namespace weft::testing {

struct CheckpointMatrix {
  std::string name;
  std::int64_t rows = 0, cols = 0;  // without padding
  Rule rule = MuonOptions{};
  DType dtype = DType::kF32;  // or bf16
  Layout layout = Layout::kReplicated;
  GradientKind gradient = GradientKind::kReduced;
  std::int64_t padding_rows = 0;
  std::vector<std::int64_t> row_blocks = {};
  std::vector<std::int64_t> shard_rows = {};
  std::vector<std::int64_t> column_blocks = {};
};
using CheckpointModel = std::vector<CheckpointMatrix>;

// bf16 is cut off, not rounded: any values will do.
inline std::vector<std::byte> Encode(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const std::uint32_t kept = dtype == DType::kF32 ? bits : bits >> 16;
    std::memcpy(bytes.data() + i * SizeOf(dtype), &kept, SizeOf(dtype));
  }
  return bytes;
}

inline std::vector<float> Decode(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * SizeOf(dtype), SizeOf(dtype));
    values[i] = std::bit_cast<float>(dtype == DType::kF32 ? bits : bits << 16);
  }
  return values;
}

// state <- state / 2 + gradient * (step + 1); weight <- weight - state / 10: another step number,
// another result. As many floats per element as it keeps, of which it uses the first.
inline CustomRule StepwiseRule(std::int64_t floats = 1) {
  CustomRule rule;
  rule.state_bytes_per_element = floats * static_cast<std::int64_t>(sizeof(float));
  rule.flops = 1000;
  rule.enqueue = [floats](const RuleContext& context) {
    context.stream.Enqueue([context, floats] {
      if (context.control->skip) return absl::OkStatus();
      const float scale = context.gradient_scale * context.control->gradient_factor *
                          static_cast<float>(context.step + 1);
      const auto* gradient = static_cast<const float*>(context.gradient);
      auto* weight = static_cast<float*>(context.weight);
      for (std::int64_t i = 0; i < context.rows * context.cols; ++i) {
        float& state = context.state[i * floats];
        state = state / 2 + gradient[i] * scale;
        weight[i] -= state / 10;
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  };
  return rule;
}

// Tensors of a world, whole. Every rank adds what it has.
class Snapshot {
 public:
  // Bytes that another rank has added otherwise are noted.
  void Add(const std::string& name, std::size_t whole, std::size_t begin, const std::byte* bytes,
           std::size_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Tensor& tensor = tensors_[name];
    tensor.bytes.resize(whole);
    tensor.known.resize(whole);
    for (std::size_t i = 0; i < count; ++i) {
      if (tensor.known[begin + i] && tensor.bytes[begin + i] != bytes[i]) wrong_ = name;
      tensor.bytes[begin + i] = bytes[i];
      tensor.known[begin + i] = true;
    }
  }

  // The name of a tensor of which ranks have different copies, or of which nobody has some bytes.
  std::string Wrong() const {
    if (!wrong_.empty()) return "copies of " + wrong_ + " differ";
    for (const auto& [name, tensor] : tensors_) {
      if (std::find(tensor.known.begin(), tensor.known.end(), false) != tensor.known.end()) {
        return "a part of " + name + " is nowhere";
      }
    }
    return "";
  }

  std::map<std::string, std::vector<std::byte>> Tensors() const {
    std::map<std::string, std::vector<std::byte>> tensors;
    for (const auto& [name, tensor] : tensors_) tensors[name] = tensor.bytes;
    return tensors;
  }

  // Empty, or the first tensor that another has otherwise, or not at all.
  static std::string Difference(const Snapshot& a, const Snapshot& b) {
    const auto x = a.Tensors(), y = b.Tensors();
    for (const auto& [name, bytes] : x) {
      const auto found = y.find(name);
      if (found == y.end()) return name + " is missing";
      if (found->second != bytes) return name + " differs";
    }
    return x.size() == y.size() ? "" : "there are more tensors";
  }

 private:
  struct Tensor {
    std::vector<std::byte> bytes;
    std::vector<bool> known;
  };

  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;
  std::string wrong_;
};

// One rank's runtime and memory.
class CheckpointMember {
 public:
  // `seed`: of the first weights; gradients depend on matrix and step alone. Padding holds sevens.
  CheckpointMember(CheckpointModel model, const RuntimeOptions& options, Rank rank,
                   std::uint64_t seed = 1)
      : model_(std::move(model)), rank_(rank.rank), grid_(options.topology.grid) {
    for (std::size_t m = 0; m < model_.size(); ++m) {
      std::vector<float> first = Normal(model_[m].rows * model_[m].cols, seed, 1, m);
      first.resize(StoredRows(m) * model_[m].cols, 7.0f);
      weights_.push_back(OwnRows(m, Encode(first, model_[m].dtype)));
    }
    runtime_ = *Runtime::Create(options, rank.device, rank.transport);
  }

  absl::Status Commit() {
    for (std::size_t m = 0; m < model_.size(); ++m) {
      const CheckpointMatrix& matrix = model_[m];
      MatrixSpec spec;
      spec.name = matrix.name;
      spec.rows = StoredRows(m);
      spec.cols = matrix.cols;
      spec.dtype = matrix.dtype;
      spec.weight = weights_[m].data();
      spec.layout = matrix.layout;
      spec.gradient = matrix.gradient;
      spec.layer = static_cast<int>(m);
      spec.rule = matrix.rule;
      spec.shard_rows = matrix.shard_rows;
      spec.padding_rows = matrix.padding_rows;
      spec.row_blocks = matrix.row_blocks;
      spec.column_blocks = matrix.column_blocks;
      pins_.push_back(std::make_unique<Pinned>(weights_[m].data(), weights_[m].size()));
      if (const auto id = runtime_->AddMatrix(spec); !id.ok()) return id.status();
    }
    return runtime_->Commit();
  }

  Runtime& operator*() { return *runtime_; }
  Runtime* operator->() { return runtime_.get(); }
  std::vector<std::byte>& weight(std::size_t m) { return weights_[m]; }

  absl::Status Submit(std::size_t m) {
    const std::int64_t step = runtime_->steps();
    std::vector<float> gradient =
        Normal(model_[m].rows * model_[m].cols, 99, static_cast<std::uint64_t>(step), m);
    gradient.resize(StoredRows(m) * model_[m].cols);
    std::vector<std::byte> bytes = Encode(gradient, model_[m].dtype);
    // All ranks have the same gradient, and so every mean of them.
    if (model_[m].gradient != GradientKind::kLocal) bytes = OwnRows(m, bytes);
    MatrixJob job;
    job.matrix = static_cast<MatrixId>(m);
    job.gradient = bytes.data();
    if (rate_) job.lr = rate_(step);
    return runtime_->Submit(job).status();
  }

  // A schedule by step; none: the rules' own rates.
  void SetRate(std::function<double(std::int64_t)> rate) { rate_ = std::move(rate); }

  // Submits everything and closes the step.
  absl::Status Close() {
    for (std::size_t m = model_.size(); m-- > 0;) {
      if (const absl::Status status = Submit(m); !status.ok()) return status;
    }
    return runtime_->Step();
  }

  absl::Status Train(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (const absl::Status status = Close(); !status.ok()) return status;
    }
    return runtime_->WaitForStep();
  }

  // Adds state and weights. `delivered`: owned weights as the forward pass gets them on every rank,
  // else as their owner keeps them.
  absl::Status AddTo(Snapshot& snapshot, bool delivered = true) {
    for (std::size_t m = 0; m < model_.size(); ++m) {
      const auto state = runtime_->State(static_cast<MatrixId>(m));
      if (!state.ok()) return state.status();
      AddState(m, *state, snapshot);
    }
    for (std::size_t m = 0; m < model_.size(); ++m) {
      const bool owned = model_[m].layout == Layout::kOwned;
      if (delivered) {
        const absl::Status status = runtime_->WaitForLayer(static_cast<int>(m));
        if (!status.ok()) return status;
      }
      if (!owned)
        AddRows(m, model_[m].name + ".weight", weights_[m].data(), OwnStored(m),
                SizeOf(model_[m].dtype), snapshot);
      if (!owned || (!delivered && runtime_->plan().matrices[m].owner != rank_)) continue;
      const auto weight = runtime_->Parameter(static_cast<MatrixId>(m));
      if (!weight.ok()) return weight.status();
      AddRows(m, model_[m].name + ".weight", static_cast<const std::byte*>(*weight),
              {0, StoredRows(m)}, SizeOf(model_[m].dtype), snapshot);
      if (!delivered) continue;
      const absl::Status released = runtime_->ParameterReleased(static_cast<int>(m));
      if (!released.ok()) return released;
    }
    return absl::OkStatus();
  }

 private:
  using Rows = std::pair<std::int64_t, std::int64_t>;  // first, count; with padding

  std::int64_t StoredRows(std::size_t m) const { return model_[m].rows + model_[m].padding_rows; }
  Rows Shard(std::size_t m) const {
    const bool in_nodes = model_[m].layout == Layout::kNodeSharded;
    std::vector<std::int64_t> rows = model_[m].shard_rows;
    if (rows.empty()) {
      rows = DefaultShardRows(StoredRows(m), in_nodes ? grid_.ranks_per_node : grid_.size());
    }
    const int own = in_nodes ? grid_.local_of(rank_) : rank_;
    return {std::accumulate(rows.begin(), rows.begin() + own, std::int64_t{0}), rows[own]};
  }
  Rows OwnStored(std::size_t m) const {
    const Layout layout = model_[m].layout;
    const bool shards = layout == Layout::kSharded || layout == Layout::kNodeSharded;
    return shards ? Shard(m) : Rows{0, StoredRows(m)};
  }
  std::vector<std::byte> OwnRows(std::size_t m, const std::vector<std::byte>& whole) const {
    const auto [first, rows] = OwnStored(m);
    const auto row = model_[m].cols * static_cast<std::int64_t>(SizeOf(model_[m].dtype));
    return {whole.begin() + first * row, whole.begin() + (first + rows) * row};
  }
  // What of the rows is no padding.
  void AddRows(std::size_t m, const std::string& name, const std::byte* bytes, Rows rows,
               std::size_t width, Snapshot& snapshot) const {
    const auto row = static_cast<std::size_t>(model_[m].cols) * width;
    const auto count = std::clamp<std::int64_t>(model_[m].rows - rows.first, 0, rows.second);
    snapshot.Add(name, model_[m].rows * row, count > 0 ? rows.first * row : 0, bytes, count * row);
  }
  void AddState(std::size_t m, absl::Span<float> state, Snapshot& snapshot) const {
    const CheckpointMatrix& matrix = model_[m];
    const auto* bytes = reinterpret_cast<const std::byte*>(state.data());
    if (std::holds_alternative<CustomRule>(matrix.rule)) {
      const std::size_t all =
          matrix.rows * matrix.cols * std::get<CustomRule>(matrix.rule).state_bytes_per_element;
      if (all > 0) snapshot.Add(matrix.name + ".state", all, 0, bytes, state.empty() ? 0 : all);
      return;
    }
    const bool adamw = std::holds_alternative<AdamWOptions>(matrix.rule);
    const std::int64_t rows =
        matrix.cols == 0 ? 0
                         : static_cast<std::int64_t>(state.size()) / matrix.cols / (adamw ? 2 : 1);
    const Rows held = rows == StoredRows(m) || rows == 0 ? Rows{0, rows} : Shard(m);
    EXPECT_EQ(held.second, rows) << matrix.name;
    AddRows(m, matrix.name + (adamw ? ".exp_avg" : ".momentum"), bytes, held, sizeof(float),
            snapshot);
    if (!adamw) return;
    AddRows(m, matrix.name + ".exp_avg_sq", bytes + state.size() / 2 * sizeof(float), held,
            sizeof(float), snapshot);
  }

  const CheckpointModel model_;
  const int rank_;
  const ProcessGrid grid_;
  std::function<double(std::int64_t)> rate_;
  std::vector<std::vector<std::byte>> weights_;
  std::vector<std::unique_ptr<Pinned>> pins_;
  std::unique_ptr<Runtime> runtime_;  // before the memory
};

// Runs `body` on every rank of a committed world; what a rank returns must be OK.
inline void RunMembers(const CheckpointModel& model, const RuntimeOptions& options,
                       std::uint64_t seed,
                       const std::function<absl::Status(CheckpointMember&, int rank)>& body) {
  RunWorld({.grid = options.topology.grid}, [&](Rank rank) {
    CheckpointMember member(model, options, rank, seed);
    absl::Status status = member.Commit();
    if (status.ok()) status = body(member, rank.rank);
    EXPECT_TRUE(status.ok()) << "rank " << rank.rank << ": " << status;
    if (!status.ok()) rank.transport.Abort(status);
  });
}

// Everywhere.
inline CheckpointModel WithLayout(CheckpointModel model, Layout layout) {
  for (CheckpointMatrix& matrix : model) matrix.layout = layout;
  return model;
}

inline AdamWOptions SteadyAdamW() {
  AdamWOptions adamw;
  adamw.eps = 1e-2;  // a gradient that rounds to the other side of zero changes little
  return adamw;
}

// Each element of each weight, relative to the weight's largest.
inline double LargestDifference(const Snapshot& a, const Snapshot& b,
                                const CheckpointModel& model) {
  const auto x = a.Tensors(), y = b.Tensors();
  double largest = 0;
  for (const CheckpointMatrix& matrix : model) {
    const std::vector<float> these = Decode(x.at(matrix.name + ".weight"), matrix.dtype);
    const std::vector<float> those = Decode(y.at(matrix.name + ".weight"), matrix.dtype);
    double most = 0, difference = 0;
    for (std::size_t i = 0; i < these.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(these[i])));
      difference = std::max(difference, std::abs(static_cast<double>(these[i]) - those[i]));
    }
    if (most > 0) largest = std::max(largest, difference / most);
  }
  return largest;
}

}  // namespace weft::testing
