// What the fake cuBLASLt computes, against sums in double, and what it finds wrong.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <memory>
#include <random>

#include "tests/fakes/ranks.h"
#include "tests/support/seed.h"

namespace weft::fakes {
namespace {

#define BLAS(call)                          \
  do {                                      \
    EXPECT_EQ(call, CUBLAS_STATUS_SUCCESS); \
  } while (false)

double Value(cudaDataType_t type, const std::byte* at) {
  switch (type) {
    case CUDA_R_16BF:
      return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(at));
    case CUDA_R_16F:
      return __half2float(*reinterpret_cast<const __half*>(at));
    default:
      return *reinterpret_cast<const float*>(at);
  }
}

void Put(cudaDataType_t type, std::byte* at, float x) {
  switch (type) {
    case CUDA_R_16BF:
      *reinterpret_cast<__nv_bfloat16*>(at) = __float2bfloat16_rn(x);
      return;
    case CUDA_R_16F:
      *reinterpret_cast<__half*>(at) = __float2half_rn(x);
      return;
    default:
      *reinterpret_cast<float*>(at) = x;
  }
}

// The most that rounding to `type` moves a value; fp16 has subnormals below 2^-14.
double RoundingOf(double value, cudaDataType_t type) {
  const double size = std::abs(value);
  if (type == CUDA_R_16BF) return 0x1p-8 * size;
  return type == CUDA_R_16F ? std::max(0x1p-11 * size, 0x1p-25) : 0x1p-24 * size;
}

// A batch of matrices in device memory with its layout. Between the lines and the matrices lies
// memory that is never written: touching it is a fault.
struct Operand {
  cudaDataType_t type;
  bool row_major;
  std::int64_t rows, cols, ld, batch, stride;
  cublasLtMatrixLayout_t layout = nullptr;
  std::unique_ptr<Array<std::byte>> memory;

  Operand(cudaDataType_t t, bool row, std::int64_t r, std::int64_t c, std::int64_t count,
          std::int64_t gap)
      : type(t), row_major(row), rows(r), cols(c), ld((row ? c : r) + gap), batch(count) {
    stride = ld * (row ? r : c) + gap;
    memory = std::make_unique<Array<std::byte>>(static_cast<std::size_t>(stride * batch) * Size());
    BLAS(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                    static_cast<std::uint64_t>(cols), ld));
    const std::int32_t order = row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    const auto count32 = static_cast<std::int32_t>(batch);
    BLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                          sizeof order));
    BLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count32,
                                          sizeof count32));
    BLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                          &stride, sizeof stride));
  }
  ~Operand() { BLAS(cublasLtMatrixLayoutDestroy(layout)); }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  std::size_t Size() const { return type == CUDA_R_32F ? 4 : 2; }
  std::byte* At(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t index = b * stride + (row_major ? i * ld + j : j * ld + i);
    return memory->data() + static_cast<std::size_t>(index) * Size();
  }
  double Get(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return Value(type, At(b, i, j));
  }
  // Whole lines only.
  void Fill(std::mt19937_64& random) {
    const std::int64_t lines = row_major ? rows : cols, length = row_major ? cols : rows;
    std::uniform_real_distribution<float> draw(-1, 1);
    std::vector<std::byte> line(static_cast<std::size_t>(length) * Size());
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < lines; ++i) {
        for (std::int64_t j = 0; j < length; ++j) {
          Put(type, line.data() + static_cast<std::size_t>(j) * Size(), draw(random));
        }
        CUDA(cudaMemcpy(row_major ? At(b, i, 0) : At(b, 0, i), line.data(), line.size(),
                        cudaMemcpyHostToDevice));
      }
    }
  }
};

// One product, its descriptors and the algorithm that the heuristic gives.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t found{};
  bool transpose_a = false, transpose_b = false;
  std::unique_ptr<Operand> a, b, c, d;

  Product(cudaDataType_t type, cudaDataType_t result, std::int64_t m, std::int64_t n,
          std::int64_t k, std::int64_t batch = 1, unsigned shape = 0, std::int64_t gap = 0) {
    const auto bit = [&](unsigned place) { return ((shape >> place) & 1U) != 0; };
    transpose_a = bit(0), transpose_b = bit(1);
    BLAS(cublasLtCreate(&handle));
    BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(cublasLtMatmulPreferenceCreate(&preference));
    const std::int32_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T};
    Set(CUBLASLT_MATMUL_DESC_TRANSA, ops[transpose_a ? 1 : 0]);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, ops[transpose_b ? 1 : 0]);
    a = std::make_unique<Operand>(type, bit(2), transpose_a ? k : m, transpose_a ? m : k, batch,
                                  gap);
    b = std::make_unique<Operand>(type, bit(3), transpose_b ? n : k, transpose_b ? k : n, batch,
                                  gap);
    c = std::make_unique<Operand>(result, bit(4), m, n, batch, gap);
    d = std::make_unique<Operand>(result, bit(4), m, n, batch, gap);
  }
  ~Product() {
    BLAS(cublasLtMatmulPreferenceDestroy(preference));
    BLAS(cublasLtMatmulDescDestroy(desc));
    BLAS(cublasLtDestroy(handle));
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void Set(cublasLtMatmulDescAttributes_t attribute, std::int32_t value) {
    BLAS(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
  }
  cublasStatus_t Choose(std::uint64_t limit) {
    BLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &limit, sizeof limit));
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, desc, a->layout, b->layout, c->layout, d->layout, preference, 1, &found, &count);
    EXPECT_EQ(count, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    return status;
  }
  cublasStatus_t Run(const void* alpha, const void* beta, Operand& from, Operand& to,
                     void* workspace, std::size_t bytes, cudaStream_t stream) {
    return cublasLtMatmul(handle, desc, alpha, a->memory->data(), a->layout, b->memory->data(),
                          b->layout, beta, from.memory->data(), from.layout, to.memory->data(),
                          to.layout, &found.algo, workspace, bytes, stream);
  }
};

class CublasLt : public ::testing::Test {
 protected:
  void SetUp() override { Reset({.devices = 1}); }
};

TEST_F(CublasLt, ProductsAreThoseOfDouble) {
  std::mt19937_64 random(testing::Seed());
  constexpr std::pair<cudaDataType_t, cudaDataType_t> kTypes[] = {{CUDA_R_32F, CUDA_R_32F},
                                                                  {CUDA_R_16BF, CUDA_R_16BF},
                                                                  {CUDA_R_16BF, CUDA_R_32F},
                                                                  {CUDA_R_16F, CUDA_R_16F},
                                                                  {CUDA_R_16F, CUDA_R_32F}};
  for (int i = 0; i < 200; ++i) {
    Reset({.devices = 1, .seed = random(), .pageable_access = false});
    const auto& types = kTypes[random() % std::size(kTypes)];
    const auto draw = [&](std::uint64_t most) {
      return 1 + static_cast<std::int64_t>(random() % most);
    };
    const std::int64_t m = draw(6), n = draw(6), k = draw(9), batch = draw(3);
    RunRanks(1, [&](int) {
      const auto [type, result] = types;
      Product product(type, result, m, n, k, batch, static_cast<unsigned>(random()),
                      static_cast<std::int64_t>(random() % 3));
      for (Operand* operand : {product.a.get(), product.b.get(), product.c.get()}) {
        operand->Fill(random);
      }
      const cudaStream_t stream = NewStream("blas");
      const bool on_device = random() % 2 == 0, in_place = random() % 2 == 0;
      const float alpha = 0.75F, beta = random() % 3 == 0 ? 0 : -1.5F;
      Array<float> scalars(std::vector<float>{alpha, beta});
      product.Set(CUBLASLT_MATMUL_DESC_POINTER_MODE,
                  on_device ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST);
      BLAS(product.Choose(random() % 2 == 0 ? 0 : 1 << 20));
      Array<std::byte> workspace(product.found.workspaceSize);
      std::vector<double> expected, sizes;
      for (std::int64_t at = 0; at < batch * m * n; ++at) {
        const std::int64_t z = at / (m * n), row = at / n % m, col = at % n;
        double sum = 0, size = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double x =
              product.transpose_a ? product.a->Get(z, l, row) : product.a->Get(z, row, l);
          const double y =
              product.transpose_b ? product.b->Get(z, col, l) : product.b->Get(z, l, col);
          sum += x * y;
          size += std::abs(x * y);
        }
        expected.push_back(alpha * sum + beta * product.c->Get(z, row, col));
        sizes.push_back(alpha * size + std::abs(beta * product.c->Get(z, row, col)));
      }
      Operand& to = in_place ? *product.c : *product.d;
      const float* const scalar = on_device ? scalars.data() : &alpha;
      BLAS(product.Run(scalar, on_device ? scalars.data() + 1 : &beta, *product.c, to,
                       workspace.data(), workspace.size(), stream));
      CUDA(cudaStreamSynchronize(stream));
      for (std::int64_t at = 0; at < batch * m * n; ++at) {
        const auto place = static_cast<std::size_t>(at);
        const double got = to.Get(at / (m * n), at / n % m, at % n);
        // k sums and the two scalings in fp32, then one rounding.
        const double roundings = static_cast<double>(k + 3) * 0x1p-24 * sizes[place] +
                                 RoundingOf(expected[place], result);
        EXPECT_NEAR(got, expected[place], roundings) << m << 'x' << n << 'x' << k << " at " << at;
      }
      CUDA(cudaStreamDestroy(stream));
    });
    CheckLeaks();
    ASSERT_EQ(FaultText(), "") << "case " << i;
  }
}

constexpr float kOne = 1, kZero = 0;

TEST_F(CublasLt, TheHeuristicHoldsTheLimitAndAMatmulItsWorkspace) {
  Product product(CUDA_R_32F, CUDA_R_32F, 4, 4, 8);
  std::mt19937_64 random(1);
  product.a->Fill(random), product.b->Fill(random);
  BLAS(product.Choose(1 << 20));
  const std::size_t wanted = product.found.workspaceSize;
  EXPECT_GT(wanted, 0U);
  Array<std::byte> workspace(wanted);
  EXPECT_EQ(
      product.Run(&kOne, &kZero, *product.c, *product.d, workspace.data(), wanted - 1, nullptr),
      CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product.Run(&kOne, &kZero, *product.c, *product.d, nullptr, wanted, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
  BLAS(product.Run(&kOne, &kZero, *product.c, *product.d, workspace.data(), wanted, nullptr));
  BLAS(product.Choose(wanted - 1));
  EXPECT_EQ(product.found.workspaceSize, 0U);
  BLAS(product.Run(&kOne, &kZero, *product.c, *product.d, nullptr, 0, nullptr));
  CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(FaultText(), "");
}

// Two products in two streams with nothing in common but their workspace.
TEST_F(CublasLt, ASharedWorkspaceIsARace) {
  for (const bool ordered : {true, false}) {
    Reset({.devices = 1});
    Product p(CUDA_R_16BF, CUDA_R_16BF, 4, 4, 8), q(CUDA_R_16BF, CUDA_R_16BF, 4, 4, 8);
    std::mt19937_64 random(1);
    for (Product* product : {&p, &q}) {
      product->a->Fill(random), product->b->Fill(random);
      BLAS(product->Choose(1 << 20));
    }
    Array<std::byte> workspace(p.found.workspaceSize);
    const cudaStream_t first = NewStream("first"), second = NewStream("second");
    BLAS(p.Run(&kOne, &kZero, *p.c, *p.d, workspace.data(), workspace.size(), first));
    const cudaEvent_t done = NewEvent();
    CUDA(cudaEventRecord(done, first));
    if (ordered) CUDA(cudaStreamWaitEvent(second, done, 0));
    BLAS(q.Run(&kOne, &kZero, *q.c, *q.d, workspace.data(), workspace.size(), second));
    CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(Count(FaultKind::kRace), ordered ? 0 : 1) << FaultText();
    if (!ordered) {
      EXPECT_TRUE(Found(FaultKind::kRace, {"matmul 4x4x8 bf16", "'first'", "'second'"}));
    }
  }
}

TEST_F(CublasLt, OperandsAreReadOnlyWhereTheyHaveTo) {
  // C is never written: with beta = 0 it does not matter, else it is found.
  for (const float beta : {0.F, 1.F}) {
    Reset({.devices = 1});
    Product product(CUDA_R_32F, CUDA_R_32F, 3, 2, 2);
    std::mt19937_64 random(1);
    product.a->Fill(random), product.b->Fill(random);
    BLAS(product.Choose(0));
    BLAS(product.Run(&kOne, &beta, *product.c, *product.d, nullptr, 0, nullptr));
    CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(Count(FaultKind::kUnwritten), beta == 0 ? 0 : 1) << FaultText();
    EXPECT_EQ(Faults().size(), beta == 0 ? 0U : 1U) << FaultText();
  }
}

TEST_F(CublasLt, AnAlgorithmIsForItsProductAndItsProcessors) {
  Product product(CUDA_R_32F, CUDA_R_32F, 4, 4, 4), other(CUDA_R_32F, CUDA_R_32F, 4, 4, 5);
  std::mt19937_64 random(1);
  for (Product* p : {&product, &other}) p->a->Fill(random), p->b->Fill(random);
  product.Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 100);
  BLAS(product.Choose(0));
  BLAS(product.Run(&kOne, &kZero, *product.c, *product.d, nullptr, 0, nullptr));
  EXPECT_EQ(FaultText(), "");
  product.Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 0);
  EXPECT_EQ(product.Run(&kOne, &kZero, *product.c, *product.d, nullptr, 0, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"4x4x4", "for 0 processors", "chosen for 100"}));
  other.found = product.found;
  EXPECT_EQ(other.Run(&kOne, &kZero, *other.c, *other.d, nullptr, 0, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"4x4x5", "another product"}));
}

// Sets an attribute of a layout while this lives.
template <typename T>
class With {
 public:
  With(Operand& operand, cublasLtMatrixLayoutAttribute_t attribute, T value)
      : layout_(operand.layout), attribute_(attribute) {
    std::size_t written = 0;
    BLAS(cublasLtMatrixLayoutGetAttribute(layout_, attribute_, &before_, sizeof before_, &written));
    EXPECT_EQ(written, sizeof before_);
    BLAS(cublasLtMatrixLayoutSetAttribute(layout_, attribute_, &value, sizeof value));
  }
  ~With() { BLAS(cublasLtMatrixLayoutSetAttribute(layout_, attribute_, &before_, sizeof before_)); }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  cublasLtMatrixLayout_t layout_;
  cublasLtMatrixLayoutAttribute_t attribute_;
  T before_{};
};

TEST_F(CublasLt, LayoutsThatDoNotFitAreRefused) {
  Product p(CUDA_R_32F, CUDA_R_32F, 4, 3, 2);
  std::mt19937_64 random(1);
  p.a->Fill(random), p.b->Fill(random);
  BLAS(p.Choose(0));
  const cublasLtMatmulHeuristicResult_t good = p.found;
  const auto expect = [&](cublasStatus_t status) {
    EXPECT_EQ(p.Choose(0), status);
    p.found = good;
    EXPECT_EQ(p.Run(&kOne, &kZero, *p.c, *p.d, nullptr, 0, nullptr), status);
  };
  expect(CUBLAS_STATUS_SUCCESS);
  {
    const With with(*p.a, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{3});
    expect(CUBLAS_STATUS_INVALID_VALUE);
  }
  {
    const With with(*p.a, CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{3});
    expect(CUBLAS_STATUS_INVALID_VALUE);
  }
  {
    const With with(*p.b, CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{1});
    expect(CUBLAS_STATUS_INVALID_VALUE);
  }
  {
    const With with(*p.c, CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{2});
    expect(CUBLAS_STATUS_INVALID_VALUE);
  }
  {
    const With with(*p.b, CUBLASLT_MATRIX_LAYOUT_TYPE, std::uint32_t{CUDA_R_16BF});
    expect(CUBLAS_STATUS_INVALID_VALUE);
  }
  {
    const With with(*p.b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{2});
    expect(CUBLAS_STATUS_INVALID_VALUE);
  }
  {
    const With with(*p.a, CUBLASLT_MATRIX_LAYOUT_ORDER, std::int32_t{CUBLASLT_ORDER_COL32});
    EXPECT_NE(p.Choose(0), CUBLAS_STATUS_SUCCESS);
  }
  p.Set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_16F);
  expect(CUBLAS_STATUS_NOT_SUPPORTED);
  p.Set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F);
  expect(CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(FaultText(), "");
}

TEST_F(CublasLt, PointersThatDoNotFitAreRefused) {
  Product p(CUDA_R_32F, CUDA_R_32F, 4, 4, 4);
  std::mt19937_64 random(1);
  p.a->Fill(random), p.b->Fill(random);
  BLAS(p.Choose(0));
  const auto run = [&](const void* alpha, const void* a, const float* beta, const void* c,
                       cublasLtMatrixLayout_t c_layout, void* d) {
    return cublasLtMatmul(p.handle, p.desc, alpha, a, p.a->layout, p.b->memory->data(), p.b->layout,
                          beta, c, c_layout, d, p.d->layout, &p.found.algo, nullptr, 0, nullptr);
  };
  std::byte *const a = p.a->memory->data(), *const c = p.c->memory->data(),
                   *const d = p.d->memory->data();
  BLAS(run(&kOne, a, &kZero, nullptr, p.c->layout, d));
  EXPECT_EQ(run(&kOne, a, &kOne, nullptr, p.c->layout, d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(nullptr, a, &kZero, c, p.c->layout, d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(&kOne, nullptr, &kZero, c, p.c->layout, d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(&kOne, a, &kZero, c, p.c->layout, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(&kOne, a + 4, &kZero, c, p.c->layout, d), CUBLAS_STATUS_NOT_SUPPORTED);
  {
    const With with(*p.c, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{5});
    EXPECT_EQ(run(&kOne, a, &kZero, d, p.c->layout, d), CUBLAS_STATUS_INVALID_VALUE);
  }
  EXPECT_EQ(FaultText(), "");
  EXPECT_EQ(run(&kOne, a, &kZero, c, p.c->layout, a), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"writes one of its factors"}));
}

TEST_F(CublasLt, HandlesAndDescriptorsAreCounted) {
  Reset({.devices = 2});
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  BLAS(cublasLtCreate(&handle));
  BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  CheckLeaks();
  EXPECT_TRUE(Found(FaultKind::kLeak, {"cublasLt handle of device 0"}));
  EXPECT_TRUE(Found(FaultKind::kLeak, {"matmul descriptor"}));
  EXPECT_EQ(Faults().size(), 2U) << FaultText();
  BLAS(cublasLtMatmulDescDestroy(desc));
  EXPECT_EQ(cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_INVALID_VALUE);
  BLAS(cublasLtDestroy(handle));
  EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(Count(FaultKind::kMisuse), 2) << FaultText();
  EXPECT_EQ(cublasLtGetVersion(), std::size_t{CUBLAS_VERSION});
}

TEST_F(CublasLt, AHandleIsForItsDevice) {
  Reset({.devices = 2});
  Product product(CUDA_R_32F, CUDA_R_32F, 2, 2, 2);
  CUDA(cudaSetDevice(1));
  EXPECT_EQ(product.Choose(0), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"handle of device 0", "on device 1"}));
  CUDA(cudaSetDevice(0));
}

}  // namespace
}  // namespace weft::fakes
