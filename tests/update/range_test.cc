// Newton-Schulz in fp16 stays far inside its range: every intermediate matrix is looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/forwarding.h"
#include "tests/support/halves.h"
#include "tests/update/runs.h"

namespace weft {
namespace {

using testing::Gaussian;

// The largest magnitude of an fp16 matrix: infinity if one is not finite.
double Largest(const Matrix& matrix) {
  const auto* bits = static_cast<const std::uint16_t*>(matrix.data);
  double largest = 0;
  for (std::int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
    const double value = std::abs(testing::HalfValue(matrix.dtype, bits[i]));
    largest = value <= largest ? largest : std::isnan(value) ? INFINITY : value;
  }
  return largest;
}

// Notes the largest magnitude that any product or shift has written.
class RangeMath : public testing::ForwardingMath {
 public:
  using ForwardingMath::ForwardingMath;
  absl::Status MatMul(Stream& stream, const Product& product) override {
    return Note(stream, inner_.MatMul(stream, product), product.d);
  }
  absl::Status ShiftDiagonal(Stream& stream, const Matrix& x, float shift,
                             const Matrix& y) override {
    return Note(stream, inner_.ShiftDiagonal(stream, x, shift, y), y);
  }

  double largest = 0;  // read once the streams are empty

 private:
  absl::Status Note(Stream& stream, absl::Status status, const Matrix& written) {
    stream.Enqueue([this, written] {
      largest = std::max(largest, Largest(written));
      return absl::OkStatus();
    });
    return status;
  }
};

class RangeDevice : public testing::ForwardingDevice {
 public:
  explicit RangeDevice(Device& inner) : ForwardingDevice(inner), math_(inner.math()) {}
  RangeMath& math() override { return math_; }

 private:
  RangeMath math_;
};

struct Input {
  std::string name;
  std::int64_t rows, cols;
  std::vector<double> g;
};

// A diagonal of these singular values: those of a matrix are all that its run depends on, and no
// matrix has larger elements than a diagonal one.
Input Diagonal(std::string name, std::int64_t rows, std::int64_t cols,
               const std::vector<double>& values) {
  Input input{std::move(name), rows, cols, std::vector<double>(rows * cols, 0.0)};
  for (std::size_t i = 0; i < values.size(); ++i) input.g[i * (cols + 1)] = values[i];
  return input;
}

TEST(RangeOfFp16, NoIntermediateComesNearItsEnd) {
  std::vector<Input> inputs = {{"Gaussian", 24, 60, Gaussian(24 * 60, 1)},
                               {"tall", 60, 24, Gaussian(24 * 60, 2)},
                               {"square", 32, 32, Gaussian(32 * 32, 3)},
                               {"huge", 24, 60, Gaussian(24 * 60, 4, 1e30)},
                               {"tiny", 24, 60, Gaussian(24 * 60, 5, 1e-25)},
                               {"one row", 1, 60, Gaussian(60, 6)},
                               Diagonal("orthogonal", 24, 24, std::vector<double>(24, 1.0)),
                               Diagonal("zero", 24, 60, {})};
  for (const int rank : {1, 2, 8}) {
    inputs.push_back(
        Diagonal("rank " + std::to_string(rank), 24, 60, std::vector<double>(rank, 1.0)));
  }
  for (const int decades : {2, 4, 8}) {
    std::vector<double> spectrum;
    for (int i = 0; i < 24; ++i) spectrum.push_back(std::pow(10.0, -decades * i / 23.0));
    inputs.push_back(Diagonal(std::to_string(decades) + " decades", 24, 60, spectrum));
  }
  // A rank-deficient one whose rounding leaves small singular values everywhere.
  const std::vector<double> left = Gaussian(24 * 2, 7), right = Gaussian(2 * 60, 8);
  Input product{"product of rank 2", 24, 60, {}};
  for (int i = 0; i < 24; ++i) {
    for (int j = 0; j < 60; ++j) {
      product.g.push_back(left[2 * i] * right[j] + left[2 * i + 1] * right[60 + j]);
    }
  }
  inputs.push_back(product);

  const auto host = *CreateHostDevice();
  for (const Input& input : inputs) {
    for (const Coefficients& coefficients : testing::AllCoefficients()) {
      for (const std::vector<int>& segments :
           {std::vector<int>{}, {0}, {2, 2, 1}, {1, 2, 2}, {2, 3}, {1, 1, 3}}) {
        const auto options = testing::Options(coefficients, DType::kF16, segments);
        RangeDevice device(*host);
        testing::Orthogonalize(device, options, input.g, input.rows, input.cols);
        EXPECT_LE(device.math().largest, 64) << input.name << " " << testing::Describe(options);
        if (input.name == "Gaussian") {
          EXPECT_GE(device.math().largest, 1) << "nothing was looked at";
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
