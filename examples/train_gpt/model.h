// A small GPT with a hand-written backward pass: token and position embeddings, pre-norm blocks of
// causal attention and a squared-ReLU MLP, a final norm and an untied head. It knows nothing of
// Weft; the two hooks are all that an overlapping optimizer needs from a model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace train_gpt {

struct GptConfig {
  int vocabulary = 65;
  int context = 64;  // longest sequence
  int width = 384;   // a multiple of heads
  int blocks = 3;
  int heads = 4;
};

struct Parameter {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  int layer = 0;        // 0: embeddings; 1..blocks; blocks + 1: final norm and head
  bool hidden = false;  // a matrix between hidden states: what Muon is for
};

// In the order in which the forward pass uses them. Weights of linear maps are outputs x inputs; a
// norm is one 2 x width matrix, gain above bias.
std::vector<Parameter> GptParameters(const GptConfig& config);
inline int LayerCount(const GptConfig& config) { return config.blocks + 2; }

// One replica. Not thread-safe. T is float or double.
template <typename T>
class Gpt {
 public:
  // Called by Forward before it reads the weights of `layer`.
  using BeforeLayer = std::function<void(int layer)>;
  // Called by Backward as soon as gradient(parameter) is complete, last layer first.
  using OnGradient = std::function<void(int parameter)>;

  // Room for batches of up to `max_batch` sequences.
  Gpt(const GptConfig& config, int max_batch);

  const GptConfig& config() const { return config_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // Whole matrices, dense rows, valid as long as the model.
  std::span<T> weight(int parameter) { return weights_[parameter]; }
  std::span<T> gradient(int parameter) { return gradients_[parameter]; }

  // Equal seeds give equal weights everywhere.
  void Initialize(std::uint64_t seed);

  // Mean cross-entropy over all positions. tokens and targets hold `batch` sequences of `context`.
  double Forward(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                 int batch, const BeforeLayer& before_layer);

  // Overwrites every gradient with that of the last Forward's mean; at most once per Forward, with
  // the weights unchanged since.
  void Backward(const OnGradient& on_gradient);

 private:
  struct Block {
    std::vector<T> normalized1, inverse1, input1;  // first norm: for backward, and its output
    std::vector<T> q, k, v, probabilities, mixed;
    std::vector<T> normalized2, inverse2, input2;
    std::vector<T> up, active;
  };

  void ForwardBlock(int block);
  void BackwardBlock(int block, const OnGradient& on_gradient);
  void Attend(Block& block);
  void AttendBackward(const Block& block);

  // y = x W^T (added to y when `accumulate`); the gradients of x (added) and of W (overwritten).
  void Linear(int parameter, const T* x, bool accumulate, T* y);
  void LinearBackward(int parameter, const T* x, const T* dy, bool accumulate, T* dx);

  // Index of the first parameter of a block; its others follow in the order of BlockParameter.
  int first(int block) const;

  GptConfig config_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<T>> weights_;
  std::vector<std::vector<T>> gradients_;

  // Of the last Forward. Matrices of tokens (batch * context) x width unless said.
  int batch_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<Block> blocks_;
  std::vector<T> residual_;
  std::vector<T> normalized_, inverse_, output_;
  std::vector<T> logits_;  // tokens x vocabulary; after Forward, their gradient

  // Scratch of Backward.
  std::vector<T> d_residual_, d_branch_, d_mixed_, d_q_, d_k_, d_v_;
  std::vector<T> d_up_;      // tokens x 4 width
  std::vector<T> d_scores_;  // context x context
};

extern template class Gpt<float>;
extern template class Gpt<double>;

}  // namespace train_gpt
