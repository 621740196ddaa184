#include "train_gpt/ops.h"

#include <algorithm>
#include <cmath>

namespace train_gpt {
namespace {

// Keeps a constant row finite.
constexpr double kVarianceFloor = 1e-5;

}  // namespace

template <typename T>
void LayerNorm(std::int64_t rows, std::int64_t width, const T* x, const T* parameters,
               T* normalized, T* inverse_std, T* y) {
  const T* gain = parameters;
  const T* bias = parameters + width;
  for (std::int64_t i = 0; i < rows; ++i, x += width, normalized += width, y += width) {
    T sum = 0;
    for (std::int64_t j = 0; j < width; ++j) sum += x[j];
    const T mean = sum / static_cast<T>(width);
    T squares = 0;
    for (std::int64_t j = 0; j < width; ++j) squares += (x[j] - mean) * (x[j] - mean);
    const T inverse =
        T{1} / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(kVarianceFloor));
    inverse_std[i] = inverse;
    for (std::int64_t j = 0; j < width; ++j) {
      normalized[j] = (x[j] - mean) * inverse;
      y[j] = gain[j] * normalized[j] + bias[j];
    }
  }
}

template <typename T>
void LayerNormBackward(std::int64_t rows, std::int64_t width, const T* dy, const T* parameters,
                       const T* normalized, const T* inverse_std, T* dx, T* d_parameters) {
  const T* gain = parameters;
  T* d_gain = d_parameters;
  T* d_bias = d_parameters + width;
  std::fill_n(d_parameters, 2 * width, T{0});
  for (std::int64_t i = 0; i < rows; ++i, dy += width, normalized += width, dx += width) {
    T sum = 0, product = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      d_gain[j] += dy[j] * normalized[j];
      d_bias[j] += dy[j];
      sum += dy[j] * gain[j];
      product += dy[j] * gain[j] * normalized[j];
    }
    const T mean = sum / static_cast<T>(width);
    const T projection = product / static_cast<T>(width);
    for (std::int64_t j = 0; j < width; ++j) {
      dx[j] += inverse_std[i] * (dy[j] * gain[j] - mean - normalized[j] * projection);
    }
  }
}

template <typename T>
void CausalSoftmax(std::int64_t size, T* scores) {
  for (std::int64_t i = 0; i < size; ++i, scores += size) {
    const T highest = *std::max_element(scores, scores + i + 1);
    T sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) sum += scores[j] = std::exp(scores[j] - highest);
    for (std::int64_t j = 0; j <= i; ++j) scores[j] /= sum;
    std::fill(scores + i + 1, scores + size, T{0});
  }
}

template <typename T>
void CausalSoftmaxBackward(std::int64_t size, const T* probabilities, T* d_scores) {
  for (std::int64_t i = 0; i < size; ++i, probabilities += size, d_scores += size) {
    T product = 0;
    for (std::int64_t j = 0; j <= i; ++j) product += probabilities[j] * d_scores[j];
    for (std::int64_t j = 0; j <= i; ++j) d_scores[j] = probabilities[j] * (d_scores[j] - product);
    std::fill(d_scores + i + 1, d_scores + size, T{0});
  }
}

template <typename T>
void SquaredRelu(std::int64_t count, const T* x, T* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T positive = std::max(x[i], T{0});
    y[i] = positive * positive;
  }
}

template <typename T>
void SquaredReluBackward(std::int64_t count, const T* x, T* dy) {
  for (std::int64_t i = 0; i < count; ++i) dy[i] *= T{2} * std::max(x[i], T{0});
}

template <typename T>
double CrossEntropy(std::int64_t rows, std::int64_t classes, std::span<const std::int32_t> targets,
                    T* logits) {
  double loss = 0;
  for (std::int64_t i = 0; i < rows; ++i, logits += classes) {
    const T highest = *std::max_element(logits, logits + classes);
    const T target = logits[targets[i]];
    double sum = 0;
    for (std::int64_t j = 0; j < classes; ++j) sum += logits[j] = std::exp(logits[j] - highest);
    loss += std::log(sum) + static_cast<double>(highest - target);
    const T scale = static_cast<T>(1.0 / (sum * static_cast<double>(rows)));
    for (std::int64_t j = 0; j < classes; ++j) logits[j] *= scale;
    logits[targets[i]] -= static_cast<T>(1.0 / static_cast<double>(rows));
  }
  return loss / static_cast<double>(rows);
}

#define TRAIN_GPT_INSTANTIATE(T)                                                               \
  template void LayerNorm<T>(std::int64_t, std::int64_t, const T*, const T*, T*, T*, T*);      \
  template void LayerNormBackward<T>(std::int64_t, std::int64_t, const T*, const T*, const T*, \
                                     const T*, T*, T*);                                        \
  template void CausalSoftmax<T>(std::int64_t, T*);                                            \
  template void CausalSoftmaxBackward<T>(std::int64_t, const T*, T*);                          \
  template void SquaredRelu<T>(std::int64_t, const T*, T*);                                    \
  template void SquaredReluBackward<T>(std::int64_t, const T*, T*);                            \
  template double CrossEntropy<T>(std::int64_t, std::int64_t, std::span<const std::int32_t>, T*);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(double)
#undef TRAIN_GPT_INSTANTIATE

}  // namespace train_gpt
