#include "tests/c/model.h"

#include <math.h>
#include <string.h>

const Rates kRates = {0.02, 0.03, 0.9, 0.1, 0.25, 1e-8, 1e-2, 0.9, 0.99, 1e-8, 0.05, 0.05};

/* splitmix64: the n-th number of a stream does not depend on who asks first. */
static double Uniform(uint64_t seed, uint64_t stream, uint64_t n) {
  uint64_t x = seed + 0x9e3779b97f4a7c15u * (stream * 1000003u + n + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return (double)(x >> 11) * (2.0 / 9007199254740992.0) - 1.0;
}

/* Rounded to float, as the trainer that holds them so has them. */
static void Fill(uint64_t seed, uint64_t stream, double factor, int count, double* to) {
  for (int i = 0; i < count; ++i) {
    to[i] = (float)(factor * Uniform(seed, stream, (uint64_t)i));
  }
}

void InitModel(uint64_t seed, Model* model) {
  Fill(seed, 1, 0.5, kFirst, model->first);
  Fill(seed, 2, 0.5, kSecond, model->second);
  Fill(seed, 3, 0.5, kBias, model->bias);
  Fill(seed, 4, 1.0, kBias, model->scale);
}

void Gradient(const Model* model, uint64_t seed, int rank, int step, Model* gradient) {
  memset(gradient, 0, sizeof(*gradient));
  for (int sample = 0; sample < kBatch; ++sample) {
    const uint64_t stream = 1000u + (uint64_t)((step * 64 + rank) * kBatch + sample);
    double x[kInputs], hidden[kHidden], error[kOutputs];
    for (int i = 0; i < kInputs; ++i) x[i] = Uniform(seed, stream, (uint64_t)i);
    for (int h = 0; h < kHidden; ++h) {
      double sum = 0;
      for (int i = 0; i < kInputs; ++i) sum += model->first[h * kInputs + i] * x[i];
      hidden[h] = tanh(sum);
    }
    for (int o = 0; o < kOutputs; ++o) {
      double y = model->scale[o] * model->bias[o];
      for (int h = 0; h < kHidden; ++h) y += model->second[o * kHidden + h] * hidden[h];
      error[o] = (y - sin(3 * x[o] + x[o + 1])) / kBatch;
      gradient->bias[o] += error[o] * model->scale[o];
      gradient->scale[o] += error[o] * model->bias[o];
    }
    for (int h = 0; h < kHidden; ++h) {
      double back = 0;
      for (int o = 0; o < kOutputs; ++o) {
        gradient->second[o * kHidden + h] += error[o] * hidden[h];
        back += error[o] * model->second[o * kHidden + h];
      }
      back *= 1 - hidden[h] * hidden[h];
      for (int i = 0; i < kInputs; ++i) gradient->first[h * kInputs + i] += back * x[i];
    }
  }
}

/* c = a b^T for a of m x n, b of m x n. */
static void TimesTransposed(int m, int n, const double* a, const double* b, double* c) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < m; ++j) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[j * n + k];
      c[i * m + j] = sum;
    }
  }
}

enum { kLong = 32 };

/* Five iterations of X <- aX + (bA + cA^2) X with A = X X^T, for m <= n. */
static void NewtonSchulz(int m, int n, double* x) {
  double norm = 0, gram[kLong * kLong], square[kLong * kLong], next[kLong * kLong];
  for (int i = 0; i < m * n; ++i) norm += x[i] * x[i];
  for (int i = 0; i < m * n; ++i) x[i] /= sqrt(norm);
  for (int iteration = 0; iteration < 5; ++iteration) {
    TimesTransposed(m, n, x, x, gram);
    TimesTransposed(m, m, gram, gram, square); /* symmetric: A A^T = A^2 */
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = 3.4445 * x[i * n + j];
        for (int k = 0; k < m; ++k) {
          sum += (-4.7750 * gram[i * m + k] + 2.0315 * square[i * m + k]) * x[k * n + j];
        }
        next[i * n + j] = sum;
      }
    }
    memcpy(x, next, sizeof(double) * (size_t)(m * n));
  }
}

static void RowNorm(int m, int n, double* x) {
  for (int i = 0; i < m; ++i) {
    double norm = 0;
    for (int j = 0; j < n; ++j) norm += x[i * n + j] * x[i * n + j];
    norm = fmax(sqrt(norm), kRates.row_norm_eps);
    for (int j = 0; j < n; ++j) x[i * n + j] *= kRates.gamma / norm;
  }
}

/* One step of Muon with Nesterov's momentum and scale sqrt(max(1, rows / cols)). */
static void Muon(int rows, int cols, int refresh, double lr, double decay, const double* gradient,
                 double* momentum, double* weight) {
  const double mu = kRates.momentum;
  const int wide = rows <= cols;
  const int m = wide ? rows : cols, n = wide ? cols : rows;
  double x[kLong * kLong];
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const int i = r * cols + c;
      momentum[i] = mu * momentum[i] + (1 - mu) * gradient[i];
      x[wide ? i : c * rows + r] = mu * momentum[i] + (1 - mu) * gradient[i];
    }
  }
  if (refresh) {
    NewtonSchulz(m, n, x);
  } else {
    RowNorm(m, n, x);
  }
  const double scale = sqrt(fmax(1.0, (double)rows / cols));
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const int i = r * cols + c;
      weight[i] = weight[i] * (1 - lr * decay) - lr * scale * x[wide ? i : c * rows + r];
    }
  }
}

static void AdamW(int count, int step, const double* gradient, double* m, double* v,
                  double* weight) {
  for (int i = 0; i < count; ++i) {
    weight[i] *= 1 - kRates.lr_bias * kRates.decay_bias;
    m[i] = kRates.beta1 * m[i] + (1 - kRates.beta1) * gradient[i];
    v[i] = kRates.beta2 * v[i] + (1 - kRates.beta2) * gradient[i] * gradient[i];
    const double mean = m[i] / (1 - pow(kRates.beta1, step + 1));
    const double square = v[i] / (1 - pow(kRates.beta2, step + 1));
    weight[i] -= kRates.lr_bias * mean / (sqrt(square) + kRates.eps);
  }
}

void TrainReference(uint64_t seed, int ranks, int steps, Model* model) {
  Model momentum, square, mean, own;
  memset(&momentum, 0, sizeof(momentum));
  memset(&square, 0, sizeof(square));
  InitModel(seed, model);
  for (int step = 0; step < steps; ++step) {
    memset(&mean, 0, sizeof(mean));
    for (int rank = 0; rank < ranks; ++rank) {
      Gradient(model, seed, rank, step, &own);
      for (size_t i = 0; i < sizeof(Model) / sizeof(double); ++i) {
        ((double*)&mean)[i] += ((double*)&own)[i] / ranks;
      }
    }
    Muon(kHidden, kInputs, 1, kRates.lr_first, 0, mean.first, momentum.first, model->first);
    Muon(kOutputs, kHidden, step % kPeriod == 0, kRates.lr_second, kRates.decay_second, mean.second,
         momentum.second, model->second);
    AdamW(kBias, step, mean.bias, momentum.bias, square.bias, model->bias);
    for (int i = 0; i < kBias; ++i) model->scale[i] -= kRates.lr_scale * mean.scale[i];
  }
}

double RelativeError(const float* a, const double* b, int count) {
  double difference = 0, norm = 0;
  for (int i = 0; i < count; ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return sqrt(difference / norm);
}
