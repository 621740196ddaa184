// The dense kernels of a transformer, forward and backward, on row-major host memory. Serial and
// deterministic: equal arguments give equal bits on one machine. Instantiated for float (training)
// and double (the gradient check).
#pragma once

#include <cstdint>
#include <span>

namespace train_gpt {

// A strided view: element (i, j) is at data[i * row_stride + j * col_stride].
template <typename T>
struct View {
  T* data;
  std::int64_t row_stride;
  std::int64_t col_stride;
};

template <typename T>
View<T> RowMajor(T* data, std::int64_t stride) {
  return {data, stride, 1};
}
template <typename T>
View<T> Transposed(T* data, std::int64_t stride) {
  return {data, 1, stride};
}

// C = alpha A B, or C += alpha A B when `accumulate`. A is m x k, B k x n, C m x n with rows
// `c_stride` apart. C overlaps neither A nor B.
template <typename T>
void MatMul(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, View<const T> a,
            View<const T> b, bool accumulate, T* c, std::int64_t c_stride);

// y[i] = gain * (x[i] - mean) / std + bias for each of `rows` rows of `width`. `parameters` holds
// the gain row, then the bias row. `normalized` (as x) and `inverse_std` (rows) are kept for
// LayerNormBackward.
template <typename T>
void LayerNorm(std::int64_t rows, std::int64_t width, const T* x, const T* parameters,
               T* normalized, T* inverse_std, T* y);

// Adds to dx; overwrites d_parameters (2 x width).
template <typename T>
void LayerNormBackward(std::int64_t rows, std::int64_t width, const T* dy, const T* parameters,
                       const T* normalized, const T* inverse_std, T* dx, T* d_parameters);

// Row-wise softmax of a size x size matrix over the columns j <= i; the others become zero.
template <typename T>
void CausalSoftmax(std::int64_t size, T* scores);
// d_scores <- gradient of the scores, given probabilities and, in d_scores, their gradient.
template <typename T>
void CausalSoftmaxBackward(std::int64_t size, const T* probabilities, T* d_scores);

// y = max(x, 0)^2, whose derivative is continuous and needs no transcendental function.
template <typename T>
void SquaredRelu(std::int64_t count, const T* x, T* y);
// dy <- dy * 2 max(x, 0), in place.
template <typename T>
void SquaredReluBackward(std::int64_t count, const T* x, T* dy);

// Mean over rows of -log softmax(logits)[target], formed in double. logits (rows x classes) become
// the gradient of that mean.
template <typename T>
double CrossEntropy(std::int64_t rows, std::int64_t classes, std::span<const std::int32_t> targets,
                    T* logits);

}  // namespace train_gpt
