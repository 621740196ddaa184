#include "train_gpt/model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "train_gpt/ops.h"

namespace train_gpt {
namespace {

constexpr int kTokens = 0;
constexpr int kPositions = 1;
constexpr int kFirstBlock = 2;

enum BlockParameter { kNorm1, kQ, kK, kV, kO, kNorm2, kUp, kDown, kBlockParameters };

}  // namespace

std::vector<Parameter> GptParameters(const GptConfig& config) {
  const std::int64_t width = config.width;
  std::vector<Parameter> parameters = {{"embed.token", config.vocabulary, width, 0, false},
                                       {"embed.position", config.context, width, 0, false}};
  for (int b = 0; b < config.blocks; ++b) {
    const std::string name = "block" + std::to_string(b) + ".";
    const int layer = b + 1;
    parameters.push_back({name + "norm1", 2, width, layer, false});
    parameters.push_back({name + "attention.q", width, width, layer, true});
    parameters.push_back({name + "attention.k", width, width, layer, true});
    parameters.push_back({name + "attention.v", width, width, layer, true});
    parameters.push_back({name + "attention.o", width, width, layer, true});
    parameters.push_back({name + "norm2", 2, width, layer, false});
    parameters.push_back({name + "mlp.up", 4 * width, width, layer, true});
    parameters.push_back({name + "mlp.down", width, 4 * width, layer, true});
  }
  parameters.push_back({"final.norm", 2, width, config.blocks + 1, false});
  parameters.push_back({"final.head", config.vocabulary, width, config.blocks + 1, false});
  return parameters;
}

template <typename T>
Gpt<T>::Gpt(const GptConfig& config, int max_batch)
    : config_(config), parameters_(GptParameters(config)) {
  for (const Parameter& parameter : parameters_) {
    weights_.emplace_back(parameter.rows * parameter.cols);
    gradients_.emplace_back(parameter.rows * parameter.cols);
  }
  const std::size_t tokens = static_cast<std::size_t>(max_batch) * config.context;
  const std::size_t size = tokens * config.width;
  const std::size_t scores = static_cast<std::size_t>(config.context) * config.context;
  blocks_.resize(config.blocks);
  for (Block& block : blocks_) {
    for (auto* activation : {&block.normalized1, &block.input1, &block.q, &block.k, &block.v,
                             &block.mixed, &block.normalized2, &block.input2}) {
      activation->resize(size);
    }
    block.inverse1.resize(tokens);
    block.inverse2.resize(tokens);
    block.probabilities.resize(scores * max_batch * config.heads);
    block.up.resize(4 * size);
    block.active.resize(4 * size);
  }
  for (auto* activation : {&residual_, &normalized_, &output_, &d_residual_, &d_branch_, &d_mixed_,
                           &d_q_, &d_k_, &d_v_}) {
    activation->resize(size);
  }
  inverse_.resize(tokens);
  logits_.resize(tokens * config.vocabulary);
  d_up_.resize(4 * size);
  d_scores_.resize(scores);
}

template <typename T>
int Gpt<T>::first(int block) const {
  return kFirstBlock + block * kBlockParameters;
}

template <typename T>
void Gpt<T>::Initialize(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  // The residual stream sums 2 * blocks branches; their last maps start smaller so that its
  // variance does not grow with depth.
  const double branch = 1.0 / std::sqrt(2.0 * config_.blocks);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Parameter& parameter = parameters_[p];
    if (parameter.name.find("norm") != std::string::npos) {
      std::fill_n(weights_[p].begin(), parameter.cols, T{1});
      std::fill_n(weights_[p].begin() + parameter.cols, parameter.cols, T{0});
      continue;
    }
    double deviation = 0.02;
    if (parameter.hidden) deviation = 0.5 / std::sqrt(static_cast<double>(parameter.cols));
    if (parameter.name.ends_with(".o") || parameter.name.ends_with(".down")) deviation *= branch;
    for (T& weight : weights_[p]) weight = static_cast<T>(deviation * normal(random));
  }
}

template <typename T>
void Gpt<T>::Linear(int parameter, const T* x, bool accumulate, T* y) {
  const Parameter& w = parameters_[parameter];
  MatMul<T>(static_cast<std::int64_t>(batch_) * config_.context, w.rows, w.cols, T{1},
            RowMajor(x, w.cols), Transposed<const T>(weights_[parameter].data(), w.cols),
            accumulate, y, w.rows);
}

template <typename T>
void Gpt<T>::LinearBackward(int parameter, const T* x, const T* dy, bool accumulate, T* dx) {
  const Parameter& w = parameters_[parameter];
  const std::int64_t tokens = static_cast<std::int64_t>(batch_) * config_.context;
  MatMul<T>(w.rows, w.cols, tokens, T{1}, Transposed(dy, w.rows), RowMajor(x, w.cols), false,
            gradients_[parameter].data(), w.cols);
  MatMul<T>(tokens, w.cols, w.rows, T{1}, RowMajor(dy, w.rows),
            RowMajor<const T>(weights_[parameter].data(), w.cols), accumulate, dx, w.cols);
}

template <typename T>
void Gpt<T>::Attend(Block& block) {
  const std::int64_t context = config_.context, width = config_.width;
  const std::int64_t size = width / config_.heads;
  const T scale = static_cast<T>(1.0 / std::sqrt(static_cast<double>(size)));
  T* probabilities = block.probabilities.data();
  for (int b = 0; b < batch_; ++b) {
    for (int h = 0; h < config_.heads; ++h, probabilities += context * context) {
      const std::int64_t at = b * context * width + h * size;
      MatMul<T>(context, context, size, scale, RowMajor<const T>(block.q.data() + at, width),
                Transposed<const T>(block.k.data() + at, width), false, probabilities, context);
      CausalSoftmax(context, probabilities);
      MatMul<T>(context, size, context, T{1}, RowMajor<const T>(probabilities, context),
                RowMajor<const T>(block.v.data() + at, width), false, block.mixed.data() + at,
                width);
    }
  }
}

template <typename T>
void Gpt<T>::AttendBackward(const Block& block) {
  const std::int64_t context = config_.context, width = config_.width;
  const std::int64_t size = width / config_.heads;
  const T scale = static_cast<T>(1.0 / std::sqrt(static_cast<double>(size)));
  const T* probabilities = block.probabilities.data();
  for (int b = 0; b < batch_; ++b) {
    for (int h = 0; h < config_.heads; ++h, probabilities += context * context) {
      const std::int64_t at = b * context * width + h * size;
      const T* d_mixed = d_mixed_.data() + at;
      MatMul<T>(context, size, context, T{1}, Transposed(probabilities, context),
                RowMajor(d_mixed, width), false, d_v_.data() + at, width);
      MatMul<T>(context, context, size, T{1}, RowMajor(d_mixed, width),
                Transposed(block.v.data() + at, width), false, d_scores_.data(), context);
      CausalSoftmaxBackward(context, probabilities, d_scores_.data());
      MatMul<T>(context, size, context, scale, RowMajor<const T>(d_scores_.data(), context),
                RowMajor(block.k.data() + at, width), false, d_q_.data() + at, width);
      MatMul<T>(context, size, context, scale, Transposed<const T>(d_scores_.data(), context),
                RowMajor(block.q.data() + at, width), false, d_k_.data() + at, width);
    }
  }
}

template <typename T>
void Gpt<T>::ForwardBlock(int b) {
  const std::int64_t tokens = static_cast<std::int64_t>(batch_) * config_.context;
  const int p = first(b);
  Block& block = blocks_[b];
  LayerNorm(tokens, config_.width, residual_.data(), weights_[p + kNorm1].data(),
            block.normalized1.data(), block.inverse1.data(), block.input1.data());
  Linear(p + kQ, block.input1.data(), false, block.q.data());
  Linear(p + kK, block.input1.data(), false, block.k.data());
  Linear(p + kV, block.input1.data(), false, block.v.data());
  Attend(block);
  Linear(p + kO, block.mixed.data(), true, residual_.data());

  LayerNorm(tokens, config_.width, residual_.data(), weights_[p + kNorm2].data(),
            block.normalized2.data(), block.inverse2.data(), block.input2.data());
  Linear(p + kUp, block.input2.data(), false, block.up.data());
  SquaredRelu(4 * tokens * config_.width, block.up.data(), block.active.data());
  Linear(p + kDown, block.active.data(), true, residual_.data());
}

template <typename T>
void Gpt<T>::BackwardBlock(int b, const OnGradient& on_gradient) {
  const std::int64_t tokens = static_cast<std::int64_t>(batch_) * config_.context;
  const int p = first(b);
  const Block& block = blocks_[b];
  LinearBackward(p + kDown, block.active.data(), d_residual_.data(), false, d_up_.data());
  on_gradient(p + kDown);
  SquaredReluBackward(4 * tokens * config_.width, block.up.data(), d_up_.data());
  LinearBackward(p + kUp, block.input2.data(), d_up_.data(), false, d_branch_.data());
  on_gradient(p + kUp);
  LayerNormBackward(tokens, config_.width, d_branch_.data(), weights_[p + kNorm2].data(),
                    block.normalized2.data(), block.inverse2.data(), d_residual_.data(),
                    gradients_[p + kNorm2].data());
  on_gradient(p + kNorm2);

  LinearBackward(p + kO, block.mixed.data(), d_residual_.data(), false, d_mixed_.data());
  on_gradient(p + kO);
  AttendBackward(block);
  LinearBackward(p + kV, block.input1.data(), d_v_.data(), false, d_branch_.data());
  on_gradient(p + kV);
  LinearBackward(p + kK, block.input1.data(), d_k_.data(), true, d_branch_.data());
  on_gradient(p + kK);
  LinearBackward(p + kQ, block.input1.data(), d_q_.data(), true, d_branch_.data());
  on_gradient(p + kQ);
  LayerNormBackward(tokens, config_.width, d_branch_.data(), weights_[p + kNorm1].data(),
                    block.normalized1.data(), block.inverse1.data(), d_residual_.data(),
                    gradients_[p + kNorm1].data());
  on_gradient(p + kNorm1);
}

template <typename T>
double Gpt<T>::Forward(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                       int batch, const BeforeLayer& before_layer) {
  const std::int64_t width = config_.width;
  const std::int64_t count = static_cast<std::int64_t>(batch) * config_.context;
  batch_ = batch;
  tokens_.assign(tokens.begin(), tokens.end());

  before_layer(0);
  for (std::int64_t i = 0; i < count; ++i) {
    const T* token = weights_[kTokens].data() + tokens_[i] * width;
    const T* position = weights_[kPositions].data() + i % config_.context * width;
    for (std::int64_t j = 0; j < width; ++j) residual_[i * width + j] = token[j] + position[j];
  }
  for (int b = 0; b < config_.blocks; ++b) {
    before_layer(b + 1);
    ForwardBlock(b);
  }
  before_layer(config_.blocks + 1);
  const int norm = first(config_.blocks), head = norm + 1;
  LayerNorm(count, width, residual_.data(), weights_[norm].data(), normalized_.data(),
            inverse_.data(), output_.data());
  Linear(head, output_.data(), false, logits_.data());
  return CrossEntropy(count, config_.vocabulary, targets, logits_.data());
}

template <typename T>
void Gpt<T>::Backward(const OnGradient& on_gradient) {
  const std::int64_t width = config_.width;
  const std::int64_t count = static_cast<std::int64_t>(batch_) * config_.context;
  const int norm = first(config_.blocks), head = norm + 1;
  LinearBackward(head, output_.data(), logits_.data(), false, d_branch_.data());
  on_gradient(head);
  std::fill_n(d_residual_.begin(), count * width, T{0});
  LayerNormBackward(count, width, d_branch_.data(), weights_[norm].data(), normalized_.data(),
                    inverse_.data(), d_residual_.data(), gradients_[norm].data());
  on_gradient(norm);
  for (int b = config_.blocks - 1; b >= 0; --b) BackwardBlock(b, on_gradient);

  std::ranges::fill(gradients_[kPositions], T{0});
  std::ranges::fill(gradients_[kTokens], T{0});
  for (std::int64_t i = 0; i < count; ++i) {
    const T* from = d_residual_.data() + i * width;
    T* position = gradients_[kPositions].data() + i % config_.context * width;
    T* token = gradients_[kTokens].data() + tokens_[i] * width;
    for (std::int64_t j = 0; j < width; ++j) {
      position[j] += from[j];
      token[j] += from[j];
    }
  }
  on_gradient(kPositions);
  on_gradient(kTokens);
}

template class Gpt<float>;
template class Gpt<double>;

}  // namespace train_gpt
