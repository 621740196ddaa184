#include "device/host/host_math.h"

#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host/kernels.h"
#include "device/host/product_check.h"

namespace weft::device {
namespace {

// Calls `body` with a null pointer of the element type that stands for `type`.
template <typename Body>
void WithType(DType type, Body body) {
  switch (type) {
    case DType::kF32:
      body(static_cast<float*>(nullptr));
      return;
    case DType::kBF16:
      body(static_cast<std::uint16_t*>(nullptr));
      return;
  }
}

absl::Status CheckMapped(const Matrix& from, bool transpose, const Matrix& to) {
  WEFT_RETURN_IF_ERROR(CheckMatrix("X", from, /*with_data=*/true));
  WEFT_RETURN_IF_ERROR(CheckMatrix("Y", to, /*with_data=*/true));
  const std::int64_t rows = transpose ? from.cols : from.rows;
  const std::int64_t cols = transpose ? from.rows : from.cols;
  if (to.rows != rows || to.cols != cols || to.batch != from.batch) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", from.rows, " x ", from.cols, " matrix (batch ", from.batch, ")",
                     transpose ? " transposed" : "", " does not fit into ", to.rows, " x ", to.cols,
                     " (batch ", to.batch, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckVector(const char* name, std::int64_t count, const void* data) {
  if (count < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the element count ", count, " is negative"));
  }
  if (count > 0 && data == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the ", name, " has no data"));
  }
  return absl::OkStatus();
}

template <typename T>
T* MatrixAt(const Matrix& matrix, std::int64_t index) {
  return static_cast<T*>(matrix.data) + index * matrix.batch_stride;
}

void NormalizeNow(const Matrix& u, bool transpose, float floor, bool clamp, const Matrix& x) {
  for (std::int64_t i = 0; i < u.batch; ++i) {
    const auto* from = MatrixAt<const float>(u, i);
    const double norm = FrobeniusNorm(from, u.rows, u.cols, u.row_stride);
    double factor = 1 / norm;
    // Comparisons are written so that a NaN norm reaches X.
    if (norm < floor) factor = clamp ? 1 / static_cast<double>(floor) : 0;
    if (norm == 0) factor = 0;
    WithType(x.dtype, [&]<typename T>(T*) {
      ScaleInto(from, u.rows, u.cols, u.row_stride, transpose, factor, MatrixAt<T>(x, i),
                x.row_stride);
    });
  }
}

bool Skips(const StepControl* control) { return control != nullptr && control->skip != 0; }

float GradientScale(float scale, const StepControl* control) {
  return control == nullptr ? scale : scale * control->gradient_factor;
}

AdamWFactors FactorsOf(const Math::AdamWArguments& arguments, double t) {
  AdamWFactors factors;
  factors.gradient_scale = GradientScale(arguments.gradient_scale, arguments.control);
  factors.keep = static_cast<float>(1 - arguments.lr * arguments.weight_decay);
  factors.beta1 = static_cast<float>(arguments.beta1);
  factors.rest1 = static_cast<float>(1 - arguments.beta1);
  factors.beta2 = static_cast<float>(arguments.beta2);
  factors.rest2 = static_cast<float>(1 - arguments.beta2);
  factors.step = static_cast<float>(arguments.lr / (1 - std::pow(arguments.beta1, t)));
  factors.root = static_cast<float>(std::sqrt(1 - std::pow(arguments.beta2, t)));
  factors.eps = static_cast<float>(arguments.eps);
  return factors;
}

// The library leaves D undefined in places when alpha is 0, so it is not asked.
bool HasNoTerms(const Product& product) { return IsEmpty(product.a) || product.alpha == 0; }

// D = beta * C, for products without terms.
void ScaleOnly(const Product& product) {
  const Matrix& d = product.d;
  for (std::int64_t i = 0; i < d.batch; ++i) {
    WithType(d.dtype, [&]<typename T>(T*) {
      T* to = MatrixAt<T>(d, i);
      if (product.beta != 0) {
        ScaleInto(MatrixAt<const T>(product.c, i), d.rows, d.cols, product.c.row_stride, false,
                  product.beta, to, d.row_stride);
        return;
      }
      for (std::int64_t row = 0; row < d.rows; ++row) {
        for (std::int64_t col = 0; col < d.cols; ++col) to[row * d.row_stride + col] = 0;
      }
    });
  }
}

}  // namespace

absl::Status HostMath::MatMul(Stream& stream, const Product& product) {
  WEFT_RETURN_IF_ERROR(CheckProduct(product, /*with_data=*/true));
  if (IsEmpty(product.d)) return absl::OkStatus();
  if (HasNoTerms(product)) {
    stream.Enqueue([product] {
      ScaleOnly(product);
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const MatMulPlan> plan, products_.Get(product));
  stream.Enqueue([plan = std::move(plan), a = product.a.data, b = product.b.data,
                  c = product.c.data, d = product.d.data] { return plan->Run(a, b, c, d); });
  return absl::OkStatus();
}

absl::Status HostMath::Prepare(const Product& product) {
  WEFT_RETURN_IF_ERROR(CheckProduct(product, /*with_data=*/false));
  if (IsEmpty(product.d) || HasNoTerms(product)) return absl::OkStatus();
  return products_.Get(product).status();
}

absl::Status HostMath::Normalize(Stream& stream, const Matrix& u, bool transpose, float floor,
                                 bool clamp_to_floor, const Matrix& x) {
  WEFT_RETURN_IF_ERROR(CheckMapped(u, transpose, x));
  if (u.dtype != DType::kF32) {
    return absl::InvalidArgumentError("only an fp32 matrix can be normalized");
  }
  if (!(floor >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the norm floor must not be negative, but is ", floor));
  }
  if (IsEmpty(u)) return absl::OkStatus();
  stream.Enqueue([=] {
    NormalizeNow(u, transpose, floor, clamp_to_floor, x);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::RowNorm(Stream& stream, const Matrix& x, bool columns, float eps,
                               float gamma, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckMapped(x, /*transpose=*/false, y));
  if (!(eps >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the eps of a row norm must not be negative, but is ", eps));
  }
  if (!std::isfinite(gamma)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gamma of a row norm must be finite, but is ", gamma));
  }
  if (IsEmpty(x)) return absl::OkStatus();
  stream.Enqueue([=] {
    for (std::int64_t i = 0; i < x.batch; ++i) {
      WithType(x.dtype, [&]<typename From>(From*) {
        WithType(y.dtype, [&]<typename To>(To*) {
          RowNormInto(MatrixAt<const From>(x, i), x.rows, x.cols, x.row_stride, columns, eps, gamma,
                      MatrixAt<To>(y, i), y.row_stride);
        });
      });
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Convert(Stream& stream, const Matrix& x, bool transpose, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckMapped(x, transpose, y));
  if (IsEmpty(x)) return absl::OkStatus();
  stream.Enqueue([=] {
    for (std::int64_t i = 0; i < x.batch; ++i) {
      WithType(x.dtype, [&]<typename From>(From*) {
        WithType(y.dtype, [&]<typename To>(To*) {
          ConvertInto(MatrixAt<const From>(x, i), x.rows, x.cols, x.row_stride, transpose,
                      MatrixAt<To>(y, i), y.row_stride);
        });
      });
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::ShiftDiagonal(Stream& stream, const Matrix& x, float shift,
                                     const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckMapped(x, /*transpose=*/false, y));
  if (x.rows != x.cols || x.dtype != y.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a diagonal is shifted in square matrices of one dtype, not in ", x.rows, " x ", x.cols));
  }
  if (IsEmpty(x)) return absl::OkStatus();
  if (x.data == y.data) return absl::InvalidArgumentError("X and Y of a shift overlap");
  stream.Enqueue([=] {
    for (std::int64_t i = 0; i < x.batch; ++i) {
      WithType(x.dtype, [&]<typename T>(T*) {
        ShiftDiagonalInto(MatrixAt<const T>(x, i), x.rows, x.row_stride, shift, MatrixAt<T>(y, i),
                          y.row_stride);
      });
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Norm(Stream& stream, std::int64_t count, const void* x, DType dtype,
                            float scale, float* norm) {
  WEFT_RETURN_IF_ERROR(CheckVector("vector", count, x));
  if (norm == nullptr) return absl::InvalidArgumentError("the norm has no place to go");
  stream.Enqueue([=] {
    double sum = 0;
    WithType(dtype, [&]<typename T>(T*) {
      sum = FrobeniusNorm(static_cast<const T*>(x), 1, count, count);
    });
    *norm = static_cast<float>(scale * sum);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Add(Stream& stream, std::int64_t count, const void* x, void* y,
                           DType dtype) {
  WEFT_RETURN_IF_ERROR(CheckVector("vector", count, x));
  WEFT_RETURN_IF_ERROR(CheckVector("sum", count, y));
  if (count == 0) return absl::OkStatus();
  if (x == y) return absl::InvalidArgumentError("the sum overlaps what is added to it");
  stream.Enqueue([=] {
    WithType(dtype,
             [&]<typename T>(T*) { AddInto(static_cast<const T*>(x), count, static_cast<T*>(y)); });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Momentum(Stream& stream, std::int64_t count, const void* gradient,
                                DType gradient_type, float gradient_scale, float mu, bool nesterov,
                                float* momentum, float* update, const StepControl* control) {
  WEFT_RETURN_IF_ERROR(CheckVector("gradient", count, gradient));
  WEFT_RETURN_IF_ERROR(CheckVector("momentum", count, momentum));
  WEFT_RETURN_IF_ERROR(CheckVector("update", count, update));
  if (count == 0) return absl::OkStatus();
  if (update == momentum || update == gradient) {
    return absl::InvalidArgumentError("the update overlaps the momentum or the gradient");
  }
  stream.Enqueue([=] {
    if (Skips(control)) return absl::OkStatus();
    WithType(gradient_type, [&]<typename G>(G*) {
      MomentumStep(count, static_cast<const G*>(gradient), GradientScale(gradient_scale, control),
                   mu, nesterov, momentum, update);
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Apply(Stream& stream, std::int64_t count, float decay, float step,
                             const float* direction, void* weight, DType weight_type,
                             const StepControl* control) {
  WEFT_RETURN_IF_ERROR(CheckVector("direction", count, direction));
  WEFT_RETURN_IF_ERROR(CheckVector("weight", count, weight));
  if (count == 0) return absl::OkStatus();
  if (weight == direction) {
    return absl::InvalidArgumentError("the weight overlaps the direction");
  }
  stream.Enqueue([=] {
    if (Skips(control)) return absl::OkStatus();
    WithType(weight_type, [&]<typename W>(W*) {
      ApplyStep(count, decay, step, direction, static_cast<W*>(weight));
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::AdamW(Stream& stream, const AdamWArguments& arguments) {
  WEFT_RETURN_IF_ERROR(CheckVector("gradient", arguments.count, arguments.gradient));
  WEFT_RETURN_IF_ERROR(CheckVector("first moment", arguments.count, arguments.m));
  WEFT_RETURN_IF_ERROR(CheckVector("second moment", arguments.count, arguments.v));
  WEFT_RETURN_IF_ERROR(CheckVector("weight", arguments.count, arguments.weight));
  if (arguments.count == 0) return absl::OkStatus();
  if (arguments.applied_steps == nullptr) {
    return absl::InvalidArgumentError("AdamW has no counter of applied steps");
  }
  stream.Enqueue([arguments] {
    if (Skips(arguments.control)) return absl::OkStatus();
    const std::int64_t t = ++*arguments.applied_steps;
    const AdamWFactors factors = FactorsOf(arguments, static_cast<double>(t));
    WithType(arguments.gradient_type, [&]<typename G>(G*) {
      WithType(arguments.weight_type, [&]<typename W>(W*) {
        AdamWStep(arguments.count, static_cast<const G*>(arguments.gradient), factors, arguments.m,
                  arguments.v, static_cast<W*>(arguments.weight));
      });
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

}  // namespace weft::device
