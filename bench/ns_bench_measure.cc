#include "bench/ns_bench_measure.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace weft::bench {
namespace {

using dnnl::memory;

void CheckOk(const absl::Status& status) {
  WEFT_CHECK(status.ok()) << std::string(status.message());
}

std::unique_ptr<Buffer> Allocate(Device& device, std::int64_t elements, DType type) {
  auto buffer = device.Allocate(static_cast<std::size_t>(elements) * SizeOf(type));
  CheckOk(buffer.status());
  return *std::move(buffer);
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void StreamTimer::Finish() { CheckOk(stream_->Synchronize(absl::InfiniteDuration())); }

DenseRecipe::DenseRecipe(Device& device, const NewtonSchulzOptions& options, std::int64_t rows,
                         std::int64_t cols)
    : device_(device), options_(options), rows_(rows), cols_(cols) {
  auto recipe = update::MakeRecipe(options, rows, cols);
  CheckOk(recipe.status());
  recipe_ = *std::move(recipe);
  for (int i = 0; i < update::kOperandCount; ++i) {
    const bool wide = update::IsLong(static_cast<update::Operand>(i));
    buffers_.push_back(
        Allocate(device, recipe_.m * (wide ? recipe_.n : recipe_.m), options.operand_type));
  }
}

Matrix DenseRecipe::At(update::Operand operand) const {
  return Matrix::Dense(buffers_[static_cast<std::size_t>(operand)]->data(), options_.operand_type,
                       recipe_.m, update::IsLong(operand) ? recipe_.n : recipe_.m);
}

void DenseRecipe::Enqueue(Stream& stream, const float* update, float* direction) {
  Math& math = device_.math();
  const bool tall = rows_ > cols_;
  CheckOk(math.Normalize(stream,
                         Matrix::Dense(const_cast<float*>(update), DType::kF32, rows_, cols_), tall,
                         options_.norm_floor, options_.clamp_to_floor, At(update::Operand::kX)));
  for (const update::RecipeStep& step : recipe_.steps) {
    if (step.kind == update::StepKind::kShiftDiagonal) {
      CheckOk(math.ShiftDiagonal(stream, At(step.a), step.beta, At(step.d)));
      continue;
    }
    Product product;
    product.a = At(step.a);
    product.b = At(step.b);
    product.transpose_b = step.transpose_b;
    product.alpha = step.alpha;
    product.beta = step.beta;
    product.c = At(step.c);
    product.d = At(step.d);
    CheckOk(math.MatMul(stream, product));
  }
  CheckOk(math.Convert(stream, At(recipe_.result), tall,
                       Matrix::Dense(direction, DType::kF32, rows_, cols_)));
}

struct RawProducts::Impl {
  struct Call {
    dnnl::matmul primitive;
    std::unordered_map<int, memory> arguments;
  };

  Impl(Device& device, DType type, int threads, std::int64_t m, std::int64_t n)
      : clock(device.clock()), engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    omp_set_num_threads(threads);
    x = Allocate(device, m * n, type);
    q = Allocate(device, m * m, type);
    small_out = Allocate(device, m * m, type);
    wide_out = Allocate(device, m * n, type);
    // Ones in any type; what is multiplied does not change the time of a dense product.
    auto kind = memory::data_type::undef;
    for (Buffer* buffer : {x.get(), q.get()}) {
      switch (type) {
        case DType::kF32:
          kind = memory::data_type::f32;
          std::fill_n(buffer->as<float>(), buffer->bytes() / sizeof(float), 1.0f);
          break;
        case DType::kBF16:
          kind = memory::data_type::bf16;
          std::fill_n(buffer->as<std::uint16_t>(), buffer->bytes() / 2, std::uint16_t{0x3f80});
          break;
        case DType::kF16:
          kind = memory::data_type::f16;
          std::fill_n(buffer->as<std::uint16_t>(), buffer->bytes() / 2, std::uint16_t{0x3c00});
          break;
      }
    }
    const memory::desc wide({m, n}, kind, memory::dims{n, 1});
    const memory::desc wide_transposed({n, m}, kind, memory::dims{1, n});
    const memory::desc square({m, m}, kind, memory::dims{m, 1});
    gram = Make(wide, *x, wide_transposed, *x, square, *small_out);
    small = Make(square, *q, square, *q, square, *small_out);
    apply = Make(square, *q, wide, *x, wide, *wide_out);
  }

  Call Make(const memory::desc& a, const Buffer& a_data, const memory::desc& b,
            const Buffer& b_data, const memory::desc& d, const Buffer& d_data) {
    return {dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, d), engine)),
            {{DNNL_ARG_SRC, memory(a, engine, a_data.data())},
             {DNNL_ARG_WEIGHTS, memory(b, engine, b_data.data())},
             {DNNL_ARG_DST, memory(d, engine, d_data.data())}}};
  }

  double Seconds(const Call& call) {
    const Nanos begin = clock.Now();
    call.primitive.execute(stream, call.arguments);
    stream.wait();
    return static_cast<double>(clock.Now() - begin) * 1e-9;
  }

  Clock& clock;
  dnnl::engine engine;
  dnnl::stream stream;
  std::unique_ptr<Buffer> x, q, small_out, wide_out;
  Call gram, small, apply;
};

RawProducts::RawProducts(Device& device, DType type, int threads, std::int64_t m, std::int64_t n)
    : impl_(std::make_unique<Impl>(device, type, threads, m, n)) {}

RawProducts::~RawProducts() = default;

RawProducts::Times RawProducts::Run() {
  return {impl_->Seconds(impl_->gram), impl_->Seconds(impl_->small), impl_->Seconds(impl_->apply)};
}

double RawProducts::Total(const Times& times, const update::Recipe& recipe) {
  double total = 0;
  for (const update::RecipeStep& step : recipe.steps) {
    if (step.kind != update::StepKind::kProduct) continue;
    total += !step.is_long() ? times.small : step.symmetric ? times.gram : times.apply;
  }
  return total;
}

}  // namespace weft::bench
