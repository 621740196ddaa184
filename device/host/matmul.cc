#include "device/host/matmul.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/half.h"
#include "device/host/kernels.h"
#include "device/product_check.h"

namespace weft::device {
namespace {

using dnnl::memory;

// Sets the OpenMP team of the calling thread, which the library reads both when it selects a
// kernel and when it runs one: the two must agree.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
    changed_ = threads != before_;
  }
  ~ScopedThreads() {
    if (changed_) omp_set_num_threads(before_);
  }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_;
  bool changed_ = false;
};

// Temporary memory of the calling thread, grown to the largest plan it has run. The library's own
// scratch memory may not be used by two threads at once.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Null when there is no memory.
  void* Reserve(std::size_t bytes) {
    constexpr std::size_t kPage = 4096;
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = (bytes + kPage - 1) / kPage * kPage;
      data_ = std::aligned_alloc(kPage, bytes_);
      if (data_ == nullptr) bytes_ = 0;
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

thread_local Scratch library_scratch;
thread_local Scratch widened_scratch;

absl::Status NoScratch(std::size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the host has no memory for the ", bytes, " temporary bytes of a product"));
}

memory::data_type TypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return memory::data_type::f32;
    case DType::kBF16:
      return memory::data_type::bf16;
    case DType::kF16:
      return memory::data_type::f16;
  }
  return memory::data_type::undef;
}

// Whether WidenedPlan knows the type's bits: its products can then go through fp32 as well.
bool CanBeWidened(DType type) {
  switch (type) {
    case DType::kF32:
      return false;
    case DType::kBF16:
    case DType::kF16:
      return true;
  }
  return false;
}

// Rows [0, rows) of a matrix, seen transposed when asked.
memory::desc Describe(const Matrix& matrix, std::int64_t rows, std::int64_t cols, bool transpose) {
  memory::dims dims{rows, cols};
  memory::dims strides{matrix.row_stride, 1};
  if (transpose) {
    std::swap(dims[0], dims[1]);
    std::swap(strides[0], strides[1]);
  }
  if (matrix.batch > 1) {
    dims.insert(dims.begin(), matrix.batch);
    strides.insert(strides.begin(), matrix.batch_stride);
  }
  return {dims, TypeOf(matrix.dtype), strides};
}

template <typename T>
void CopyRows(const Matrix& form, std::int64_t rows, std::int64_t cols, const std::byte* from,
              const Matrix& to_form, std::byte* to) {
  for (std::int64_t i = 0; i < form.batch; ++i) {
    ConvertInto(reinterpret_cast<const T*>(from) + i * form.batch_stride, rows, cols,
                form.row_stride, false, reinterpret_cast<T*>(to) + i * to_form.batch_stride,
                to_form.row_stride);
  }
}

// One library call: rows [first_row, first_row + rows) of D, of which the first `cols` columns.
class Panel {
 public:
  // Throws dnnl::error.
  Panel(const dnnl::engine& engine, const Product& product, std::int64_t first_row,
        std::int64_t rows, std::int64_t cols)
      : engine_(engine), product_(product), rows_(rows), cols_(cols) {
    const Matrix& a = product.a;
    const Matrix& b = product.b;
    const std::size_t element = SizeOf(a.dtype);
    a_offset_ = static_cast<std::size_t>(first_row * a.row_stride) * element;
    c_offset_ = static_cast<std::size_t>(first_row * product.c.row_stride) * element;
    d_offset_ = static_cast<std::size_t>(first_row * product.d.row_stride) * element;
    a_ = Describe(a, rows, a.cols, false);
    b_ = product.transpose_b ? Describe(b, cols, b.cols, true) : Describe(b, b.rows, cols, false);
    d_ = Describe(product.d, rows, cols, false);

    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops after;
    float scale = product.alpha;
    if (product.beta != 0) {
      c_ = Describe(product.c, rows, cols, false);
      // The library adds a second operand only in D's own layout, and scales it only together
      // with the product; anything else starts from a copy of C in D.
      const float ratio = product.alpha / product.beta;
      add_c_ = c_ == d_ && std::isnormal(ratio);
      if (add_c_) {
        scale = ratio;
        after.append_binary(dnnl::algorithm::binary_add, c_);
        if (product.beta != 1) {
          after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, product.beta, 0.0f);
        }
      } else {
        after.append_sum(product.beta);
      }
    }
    if (scale != 1) attributes.set_output_scales(0, {scale});
    attributes.set_post_ops(after);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a_, b_, d_), attributes, engine_);
    scratch_ = chosen.scratchpad_desc();
    primitive_ = dnnl::matmul(chosen);
  }

  std::size_t scratch_bytes() const { return scratch_.get_size(); }

  // May throw dnnl::error.
  void Run(dnnl::stream& stream, const std::byte* a, const std::byte* b, const std::byte* c,
           std::byte* d, void* scratch) const {
    if (product_.beta != 0 && !add_c_) CopyCToD(c + c_offset_, d + d_offset_);
    std::unordered_map<int, memory> arguments{
        {DNNL_ARG_SRC, Wrap(a_, a + a_offset_)},
        {DNNL_ARG_WEIGHTS, Wrap(b_, b)},
        {DNNL_ARG_DST, Wrap(d_, d + d_offset_)},
        {DNNL_ARG_SCRATCHPAD, memory(scratch_, engine_, scratch)}};
    if (add_c_) {
      arguments.insert(
          {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, Wrap(c_, c + c_offset_)});
    }
    primitive_.execute(stream, arguments);
    stream.wait();
  }

 private:
  memory Wrap(const memory::desc& form, const std::byte* data) const {
    return {form, engine_, const_cast<std::byte*>(data)};
  }

  void CopyCToD(const std::byte* c, std::byte* d) const {
    switch (product_.d.dtype) {
      case DType::kF32:
        CopyRows<float>(product_.c, rows_, cols_, c, product_.d, d);
        return;
      case DType::kBF16:
        CopyRows<BF16>(product_.c, rows_, cols_, c, product_.d, d);
        return;
      case DType::kF16:
        CopyRows<F16>(product_.c, rows_, cols_, c, product_.d, d);
        return;
    }
  }

  dnnl::engine engine_;
  Product product_;
  std::int64_t rows_;
  std::int64_t cols_;
  std::size_t a_offset_ = 0;
  std::size_t c_offset_ = 0;
  std::size_t d_offset_ = 0;
  bool add_c_ = false;
  memory::desc a_, b_, c_, d_, scratch_;
  dnnl::matmul primitive_;
};

// Rows of one panel of a triangle: smaller ones waste less above the diagonal, larger ones run
// closer to the library's full speed. A multiple of the mirror's block and of a cache line.
std::int64_t PanelRows(std::int64_t rows) {
  constexpr std::int64_t kQuantum = 32;
  constexpr std::int64_t kSmallest = 128;
  constexpr std::int64_t kMostPanels = 8;
  const std::int64_t wanted = std::max(kSmallest, (rows + kMostPanels - 1) / kMostPanels);
  return (wanted + kQuantum - 1) / kQuantum * kQuantum;
}

class LibraryPlan final : public MatMulPlan {
 public:
  // Throws dnnl::error.
  LibraryPlan(const Product& product, const MatMulOptions& options)
      : engine_(dnnl::engine::kind::cpu, 0), product_(product), threads_(options.threads) {
    const ScopedThreads threads(threads_);
    const std::int64_t rows = product.d.rows;
    const bool triangle = product.symmetric && rows >= options.min_triangle_rows;
    const std::int64_t step = triangle ? PanelRows(rows) : rows;
    for (std::int64_t first = 0; first < rows; first += step) {
      const std::int64_t height = std::min(step, rows - first);
      panels_.emplace_back(engine_, product, first, height,
                           triangle ? first + height : product.d.cols);
      scratch_bytes_ = std::max(scratch_bytes_, panels_.back().scratch_bytes());
      ends_.push_back(first + height);
    }
  }

  absl::Status Run(const void* a, const void* b, const void* c, void* d) const override {
    const ScopedThreads threads(threads_);
    void* scratch = library_scratch.Reserve(scratch_bytes_);
    if (scratch == nullptr && scratch_bytes_ > 0) return NoScratch(scratch_bytes_);
    try {
      dnnl::stream stream(engine_);
      std::int64_t first = 0;
      for (std::size_t i = 0; i < panels_.size(); ++i) {
        panels_[i].Run(stream, static_cast<const std::byte*>(a), static_cast<const std::byte*>(b),
                       static_cast<const std::byte*>(c), static_cast<std::byte*>(d), scratch);
        if (product_.symmetric) Mirror(d, first, ends_[i]);
        first = ends_[i];
      }
    } catch (const dnnl::error& error) {
      return absl::InternalError(absl::StrCat("oneDNN failed to run a product: ", error.what()));
    }
    return absl::OkStatus();
  }

 private:
  void Mirror(void* d, std::int64_t row_begin, std::int64_t row_end) const {
    const Matrix& form = product_.d;
    for (std::int64_t i = 0; i < form.batch; ++i) {
      switch (form.dtype) {
        case DType::kF32:
          MirrorLowerRows(static_cast<float*>(d) + i * form.batch_stride, row_begin, row_end,
                          form.row_stride);
          break;
        case DType::kBF16:
        case DType::kF16:
          MirrorLowerRows(static_cast<std::uint16_t*>(d) + i * form.batch_stride, row_begin,
                          row_end, form.row_stride);
          break;
      }
    }
  }

  dnnl::engine engine_;
  Product product_;
  int threads_;
  std::vector<Panel> panels_;
  std::vector<std::int64_t> ends_;
  std::size_t scratch_bytes_ = 0;
};

// The fp32 product that stands for `product`: dense operands.
Product Widened(const Product& product) {
  Product wide = product;
  for (Matrix* matrix : {&wide.a, &wide.b, &wide.c, &wide.d}) {
    *matrix = Matrix::Dense(nullptr, DType::kF32, matrix->rows, matrix->cols, matrix->batch);
  }
  return wide;
}

// 16-bit operands, of type Half, through an fp32 product.
template <typename Half>
class WidenedPlan final : public MatMulPlan {
 public:
  WidenedPlan(const Product& product, std::shared_ptr<const MatMulPlan> inner)
      : product_(product), inner_(std::move(inner)) {}

  absl::Status Run(const void* a, const void* b, const void* c, void* d) const override {
    const bool with_c = product_.beta != 0;
    const std::size_t count =
        Count(product_.a) + Count(product_.b) + Count(product_.d) * (with_c ? 2 : 1);
    auto* wide_a = static_cast<float*>(widened_scratch.Reserve(count * sizeof(float)));
    if (wide_a == nullptr) return NoScratch(count * sizeof(float));
    float* wide_b = wide_a + Count(product_.a);
    float* wide_d = wide_b + Count(product_.b);
    float* wide_c = with_c ? wide_d + Count(product_.d) : nullptr;
    Widen(product_.a, a, wide_a);
    Widen(product_.b, b, wide_b);
    if (with_c) Widen(product_.c, c, wide_c);
    WEFT_RETURN_IF_ERROR(inner_->Run(wide_a, wide_b, wide_c, wide_d));
    const Matrix& form = product_.d;
    for (std::int64_t i = 0; i < form.batch; ++i) {
      ConvertInto(wide_d + i * form.rows * form.cols, form.rows, form.cols, form.cols, false,
                  static_cast<Half*>(d) + i * form.batch_stride, form.row_stride);
    }
    return absl::OkStatus();
  }

 private:
  static std::size_t Count(const Matrix& form) {
    return static_cast<std::size_t>(form.batch * form.rows * form.cols);
  }

  static void Widen(const Matrix& form, const void* from, float* to) {
    for (std::int64_t i = 0; i < form.batch; ++i) {
      ConvertInto(static_cast<const Half*>(from) + i * form.batch_stride, form.rows, form.cols,
                  form.row_stride, false, to + i * form.rows * form.cols, form.cols);
    }
  }

  Product product_;
  std::shared_ptr<const MatMulPlan> inner_;
};

absl::StatusOr<std::shared_ptr<const MatMulPlan>> MakePlan(const Product& product,
                                                           const MatMulOptions& options) {
  const bool widen = CanBeWidened(product.a.dtype);
  if (!widen || options.native_halves) {
    try {
      return std::make_shared<const LibraryPlan>(product, options);
    } catch (const dnnl::error& error) {
      if (!widen || error.status != dnnl_unimplemented) {
        return absl::InternalError(absl::StrCat("oneDNN refused a product of ", product.a.rows,
                                                " x ", product.a.cols, " and ", product.b.rows,
                                                " x ", product.b.cols, ": ", error.what()));
      }
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const MatMulPlan> inner,
                        MakePlan(Widened(product), options));
  switch (product.a.dtype) {
    case DType::kF32:
      break;
    case DType::kBF16:
      return std::make_shared<const WidenedPlan<BF16>>(product, std::move(inner));
    case DType::kF16:
      return std::make_shared<const WidenedPlan<F16>>(product, std::move(inner));
  }
  return inner;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MatMulPlan>> MatMulCache::Get(const Product& product) {
  const std::string key = FormOf(product);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const MatMulPlan> plan, MakePlan(product, options_));
  plans_.emplace(key, plan);
  return plan;
}

std::string MatMulLibrary() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat("oneDNN ", version->major, ".", version->minor, ".", version->patch);
}

}  // namespace weft::device
