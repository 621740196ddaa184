/* A small model and its serial float64 reference, independent of Weft: what both the ranks of
 * train.c and the reference compute from. */
#ifndef TESTS_C_MODEL_H_
#define TESTS_C_MODEL_H_

#include <stdint.h>

enum { kInputs = 12, kHidden = 20, kOutputs = 6, kBatch = 8 };
enum { kFirst = kHidden * kInputs, kSecond = kOutputs * kHidden, kBias = kOutputs };

/* y = second tanh(first x) + scale * bias: `first` by Muon, `second` by periodic Muon, `bias` by
 * AdamW, `scale` (1 x kOutputs) by a rule of the caller's. */
typedef struct {
  double first[kFirst], second[kSecond], bias[kBias], scale[kBias];
} Model;

/* Equal for equal seeds, on all ranks. */
void InitModel(uint64_t seed, Model* model);
/* The gradient of half the mean squared error over the batch of one rank in one step. */
void Gradient(const Model* model, uint64_t seed, int rank, int step, Model* gradient);

enum { kPeriod = 2 };
typedef struct {
  double lr_first, lr_second, momentum, decay_second, gamma, row_norm_eps;
  double lr_bias, beta1, beta2, eps, decay_bias;
  double lr_scale;
} Rates;
extern const Rates kRates;

/* The weights after `steps` steps of `ranks` ranks, in float64 and one thread. */
void TrainReference(uint64_t seed, int ranks, int steps, Model* model);
/* ||a - b|| / ||b||, of `count` numbers. */
double RelativeError(const float* a, const double* b, int count);

#endif /* TESTS_C_MODEL_H_ */
