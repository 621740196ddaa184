#include "device/host/host_math.h"

#include <cmath>
#include <memory>

#include "base/status_macros.h"
#include "device/element.h"
#include "device/host/kernels.h"
#include "device/math_check.h"
#include "device/product_check.h"
#include "device/step_factors.h"
#include "device/verdict_rules.h"

namespace weft::device {
namespace {

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
    WithElement(x.dtype, [&]<typename T>(T*) {
      ScaleInto(from, u.rows, u.cols, u.row_stride, transpose, factor, MatrixAt<T>(x, i),
                x.row_stride);
    });
  }
}

// D = beta * C, for products without terms.
void ScaleOnly(const Product& product) {
  const Matrix& d = product.d;
  for (std::int64_t i = 0; i < d.batch; ++i) {
    WithElement(d.dtype, [&]<typename T>(T*) {
      T* to = MatrixAt<T>(d, i);
      if (product.beta != 0) {
        ScaleInto(MatrixAt<const T>(product.c, i), d.rows, d.cols, product.c.row_stride, false,
                  product.beta, to, d.row_stride);
        return;
      }
      for (std::int64_t row = 0; row < d.rows; ++row) {
        for (std::int64_t col = 0; col < d.cols; ++col) to[row * d.row_stride + col] = {};
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
  WEFT_RETURN_IF_ERROR(CheckNormalize(u, transpose, floor, x));
  if (IsEmpty(u)) return absl::OkStatus();
  stream.Enqueue([=] {
    NormalizeNow(u, transpose, floor, clamp_to_floor, x);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::RowNorm(Stream& stream, const Matrix& x, bool columns, float eps,
                               float gamma, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckRowNorm(x, eps, gamma, y));
  if (IsEmpty(x)) return absl::OkStatus();
  stream.Enqueue([=] {
    for (std::int64_t i = 0; i < x.batch; ++i) {
      WithElement(x.dtype, [&]<typename From>(From*) {
        WithElement(y.dtype, [&]<typename To>(To*) {
          RowNormInto(MatrixAt<const From>(x, i), x.rows, x.cols, x.row_stride, columns, eps, gamma,
                      MatrixAt<To>(y, i), y.row_stride);
        });
      });
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::ColumnSquares(Stream& stream, const Matrix& x, float unit, bool add,
                                     float* squares) {
  WEFT_RETURN_IF_ERROR(CheckColumnSquares(x, unit));
  if (x.cols == 0) return absl::OkStatus();
  stream.Enqueue([=] {
    ColumnSquaresInto(static_cast<const float*>(x.data), x.rows, x.cols, x.row_stride, unit, add,
                      squares);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::DivideColumns(Stream& stream, const Matrix& x, const ColumnNorms& norms,
                                     const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckDivideColumns(x, norms, y));
  if (IsEmpty(x)) return absl::OkStatus();
  stream.Enqueue([=] {
    DivideColumnsInto(static_cast<const float*>(x.data), x.rows, x.cols, x.row_stride, norms,
                      static_cast<float*>(y.data), y.row_stride);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Convert(Stream& stream, const Matrix& x, bool transpose, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckConvert(x, transpose, y));
  if (IsEmpty(x)) return absl::OkStatus();
  stream.Enqueue([=] {
    for (std::int64_t i = 0; i < x.batch; ++i) {
      WithElement(x.dtype, [&]<typename From>(From*) {
        WithElement(y.dtype, [&]<typename To>(To*) {
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
  WEFT_RETURN_IF_ERROR(CheckShiftDiagonal(x, y));
  if (IsEmpty(x)) return absl::OkStatus();
  stream.Enqueue([=] {
    for (std::int64_t i = 0; i < x.batch; ++i) {
      WithElement(x.dtype, [&]<typename T>(T*) {
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
  WEFT_RETURN_IF_ERROR(CheckNorm(count, x, norm));
  stream.Enqueue([=] {
    double sum = 0;
    WithElement(dtype, [&]<typename T>(T*) {
      sum = FrobeniusNorm(static_cast<const T*>(x), 1, count, count);
    });
    *norm = static_cast<float>(scale * sum);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Add(Stream& stream, std::int64_t count, const void* x, void* y,
                           DType dtype) {
  WEFT_RETURN_IF_ERROR(CheckAdd(count, x, y));
  if (count == 0) return absl::OkStatus();
  stream.Enqueue([=] {
    WithElement(dtype, [&]<typename T>(T*) {
      AddInto(static_cast<const T*>(x), count, static_cast<T*>(y));
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Momentum(Stream& stream, std::int64_t count, const void* gradient,
                                DType gradient_type, float gradient_scale, float mu, bool nesterov,
                                float* momentum, float* update, const StepControl* control) {
  WEFT_RETURN_IF_ERROR(CheckMomentum(count, gradient, momentum, update));
  if (count == 0) return absl::OkStatus();
  stream.Enqueue([=] {
    if (Skips(control)) return absl::OkStatus();
    WithElement(gradient_type, [&]<typename G>(G*) {
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
  WEFT_RETURN_IF_ERROR(CheckApply(count, direction, weight));
  if (count == 0) return absl::OkStatus();
  stream.Enqueue([=] {
    if (Skips(control)) return absl::OkStatus();
    WithElement(weight_type, [&]<typename W>(W*) {
      ApplyStep(count, decay, step, direction, static_cast<W*>(weight));
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::ApplyMatrix(Stream& stream, float decay, float step, const Matrix& direction,
                                   const Matrix& weight, const StepControl* control) {
  WEFT_RETURN_IF_ERROR(CheckApplyMatrix(direction, weight));
  if (IsEmpty(weight)) return absl::OkStatus();
  stream.Enqueue([=] {
    if (Skips(control)) return absl::OkStatus();
    WithElement(weight.dtype, [&]<typename W>(W*) {
      for (std::int64_t b = 0; b < weight.batch; ++b) {
        for (std::int64_t i = 0; i < weight.rows; ++i) {
          ApplyStep(weight.cols, decay, step,
                    MatrixAt<const float>(direction, b) + i * direction.row_stride,
                    MatrixAt<W>(weight, b) + i * weight.row_stride);
        }
      }
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::AdamW(Stream& stream, const AdamWArguments& arguments) {
  WEFT_RETURN_IF_ERROR(CheckAdamW(arguments));
  if (arguments.count == 0) return absl::OkStatus();
  stream.Enqueue([arguments] {
    if (Skips(arguments.control)) return absl::OkStatus();
    const std::int64_t t = ++*arguments.applied_steps;
    const AdamWFactors factors = FactorsOf(arguments, static_cast<double>(t));
    WithElement(arguments.gradient_type, [&]<typename G>(G*) {
      WithElement(arguments.weight_type, [&]<typename W>(W*) {
        AdamWStep(arguments.count, static_cast<const G*>(arguments.gradient), factors, arguments.m,
                  arguments.v, static_cast<W*>(arguments.weight));
      });
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Tally(Stream& stream, const VerdictArguments& arguments) {
  WEFT_RETURN_IF_ERROR(CheckVerdict(arguments));
  stream.Enqueue([arguments] {
    double square = 0;
    for (std::int32_t i = 0; i < arguments.checked_count; ++i) {
      const std::int32_t matrix = arguments.checked[i];
      const double norm = arguments.norms[matrix];
      if (IsFiniteNorm(norm)) {
        square += norm * norm;
      } else {
        ValuesOf(arguments.values, matrix)[kVerdictNonFinite] =
            1 + static_cast<float>(arguments.rank);
      }
    }
    TailOf(arguments.values, arguments.matrices)[kVerdictNorms + arguments.rank] =
        static_cast<float>(std::sqrt(square));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status HostMath::Decide(Stream& stream, const VerdictArguments& arguments) {
  WEFT_RETURN_IF_ERROR(CheckVerdict(arguments));
  stream.Enqueue([arguments] {
    const VerdictRules& rules = arguments.rules;
    const float* tail = TailOf(arguments.values, arguments.matrices);
    bool stops = !ScalesAgree(tail);
    for (std::int32_t m = 0; m < arguments.matrices; ++m) {
      stops |= StopsStep(ValuesOf(arguments.values, m), arguments.reduced[m] != 0, rules);
    }
    const double norm = GradientNorm(tail, arguments.ranks);
    const float factor = GradientFactor(tail, ClipFactor(norm, rules.max_gradient_norm));
    for (std::int32_t m = 0; m < arguments.matrices; ++m) {
      const bool skip = stops || LeavesAlone(ValuesOf(arguments.values, m), rules);
      arguments.controls[m] = {.skip = skip ? 1.0f : 0.0f, .gradient_factor = factor};
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

}  // namespace weft::device
