// What weft_ns_bench times: one run each of the things it compares.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "update/newton_schulz.h"
#include "update/recipe.h"
#include "weft/device.h"
#include "weft/update.h"

namespace weft::bench {

double Median(std::vector<double> values);

// Seconds of `run` on a stream, from its first item to its last.
class StreamTimer {
 public:
  explicit StreamTimer(Device& device) : stream_(device.CreateStream("bench")) {}

  template <typename Run>
  double Seconds(Run run) {
    Nanos begin = 0;
    Nanos end = 0;
    stream_->RecordTime(&begin);
    run(*stream_);
    stream_->RecordTime(&end);
    Finish();
    return static_cast<double>(end - begin) * 1e-9;
  }

 private:
  // Ends the program with the error if the stream has failed.
  void Finish();

  std::unique_ptr<Stream> stream_;
};

// A recipe run product by product with every product in full: Newton-Schulz without use of
// symmetry.
class DenseRecipe {
 public:
  DenseRecipe(Device& device, const NewtonSchulzOptions& options, std::int64_t rows,
              std::int64_t cols);

  void Enqueue(Stream& stream, const float* update, float* direction);

 private:
  Matrix At(update::Operand operand) const;

  Device& device_;
  NewtonSchulzOptions options_;
  std::int64_t rows_, cols_;
  update::Recipe recipe_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// oneDNN's own matmul, called directly on dense row-major operands, for the three shapes of product
// that a recipe on m x n matrices has.
class RawProducts {
 public:
  RawProducts(Device& device, DType type, int threads, std::int64_t m, std::int64_t n);
  ~RawProducts();

  // Seconds of X X^T (m x n), R R (m x m) and Q X (m x m, m x n).
  struct Times {
    double gram = 0;
    double small = 0;
    double apply = 0;
  };
  Times Run();

  // The time that all products of `recipe` take at these speeds.
  static double Total(const Times& times, const update::Recipe& recipe);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::bench
