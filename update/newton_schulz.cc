#include "update/newton_schulz.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace weft::update {

NewtonSchulz::NewtonSchulz(Device& device, const NewtonSchulzOptions& options, Recipe recipe,
                           std::int64_t rows, std::int64_t cols, std::int64_t batch)
    : device_(device),
      options_(options),
      recipe_(std::move(recipe)),
      rows_(rows),
      cols_(cols),
      batch_(batch) {
  constexpr std::size_t kAlignment = 64;
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<update::Operand>(i);
    const std::int64_t width = IsLong(operand) ? recipe_.n : recipe_.m;
    const std::size_t bytes = recipe_.m * width * batch_ * SizeOf(options_.operand_type);
    offsets_[i] = workspace_bytes_;
    workspace_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

absl::StatusOr<std::unique_ptr<NewtonSchulz>> NewtonSchulz::Create(
    Device& device, const NewtonSchulzOptions& options, std::int64_t rows, std::int64_t cols,
    std::int64_t batch) {
  if (rows < 0 || cols < 0 || batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("no matrices: ", batch, " of ", rows, " x ", cols));
  }
  WEFT_ASSIGN_OR_RETURN(Recipe recipe, MakeRecipe(options, rows, cols));
  std::unique_ptr<NewtonSchulz> run(
      new NewtonSchulz(device, options, std::move(recipe), rows, cols, batch));
  if (rows == 0 || cols == 0) return run;
  for (const RecipeStep& step : run->recipe_.steps) {
    if (step.kind != StepKind::kProduct) continue;
    WEFT_RETURN_IF_ERROR(device.math().Prepare(run->ProductOf(step, nullptr)));
  }
  return run;
}

Matrix NewtonSchulz::Operand(update::Operand operand, void* workspace) const {
  const std::int64_t width = IsLong(operand) ? recipe_.n : recipe_.m;
  void* data = workspace == nullptr
                   ? nullptr
                   : static_cast<std::byte*>(workspace) + offsets_[static_cast<int>(operand)];
  return Matrix::Dense(data, options_.operand_type, recipe_.m, width, batch_);
}

Product NewtonSchulz::ProductOf(const RecipeStep& step, void* workspace) const {
  Product product;
  product.a = Operand(step.a, workspace);
  product.b = Operand(step.b, workspace);
  product.transpose_b = step.transpose_b;
  product.alpha = step.alpha;
  product.beta = step.beta;
  product.c = Operand(step.c, workspace);
  product.d = Operand(step.d, workspace);
  product.symmetric = step.symmetric;
  return product;
}

absl::Status NewtonSchulz::EnqueueProducts(Stream& stream, void* workspace) const {
  Math& math = device_.math();
  for (const RecipeStep& step : recipe_.steps) {
    if (step.kind == StepKind::kShiftDiagonal) {
      WEFT_RETURN_IF_ERROR(math.ShiftDiagonal(stream, Operand(step.a, workspace), step.beta,
                                              Operand(step.d, workspace)));
    } else {
      WEFT_RETURN_IF_ERROR(math.MatMul(stream, ProductOf(step, workspace)));
    }
  }
  return absl::OkStatus();
}

absl::Status NewtonSchulz::Enqueue(Stream& stream, const float* update, float* direction,
                                   void* workspace) {
  return Enqueue(stream,
                 Matrix::Dense(const_cast<float*>(update), DType::kF32, rows_, cols_, batch_),
                 Matrix::Dense(direction, DType::kF32, rows_, cols_, batch_), workspace);
}

absl::Status NewtonSchulz::Enqueue(Stream& stream, const Matrix& update, const Matrix& direction,
                                   void* workspace) {
  WEFT_CHECK(update.rows == rows_ && update.cols == cols_ && update.batch == batch_)
      << "a run for " << batch_ << " of " << rows_ << " x " << cols_;
  if (rows_ == 0 || cols_ == 0) return absl::OkStatus();
  Math& math = device_.math();
  const bool tall = rows_ > cols_;
  WEFT_RETURN_IF_ERROR(math.Normalize(stream, update, tall, options_.norm_floor,
                                      options_.clamp_to_floor,
                                      Operand(update::Operand::kX, workspace)));
  if (products_ == nullptr || products_in_ != workspace) {
    WEFT_ASSIGN_OR_RETURN(products_, device_.Record([this, workspace](Stream& on) {
      return EnqueueProducts(on, workspace);
    }));
    products_in_ = workspace;
  }
  WEFT_RETURN_IF_ERROR(products_->Enqueue(stream));
  return math.Convert(stream, Operand(recipe_.result, workspace), tall, direction);
}

}  // namespace weft::update
