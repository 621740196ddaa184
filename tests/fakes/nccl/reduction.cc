#include "tests/fakes/nccl/reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace weft::fakes::nccl {
namespace {

// Wide<T>: what T is computed in. Integers wrap around as unsigned ones do.
template <typename T>
struct Wide {
  using Type = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
  static Type From(T x) { return static_cast<Type>(x); }
  static T To(Type x) { return static_cast<T>(x); }
};
template <>
struct Wide<__half> {
  using Type = float;
  static float From(__half x) { return __half2float(x); }
  static __half To(float x) { return __float2half_rn(x); }
};
template <>
struct Wide<__nv_bfloat16> {
  using Type = float;
  static float From(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __nv_bfloat16 To(float x) { return __float2bfloat16_rn(x); }
};

template <typename T>
typename Wide<T>::Type Combine(ncclRedOp_t op, typename Wide<T>::Type a, typename Wide<T>::Type b) {
  using Type = typename Wide<T>::Type;
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMax:
    case ncclMin:
      if constexpr (std::is_integral_v<T>) {
        const T x = static_cast<T>(a), y = static_cast<T>(b);
        return static_cast<Type>(op == ncclMax ? std::max(x, y) : std::min(x, y));
      } else {
        return op == ncclMax ? std::fmax(a, b) : std::fmin(a, b);
      }
    default:
      return a + b;
  }
}

template <typename T>
T Load(const void* from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

template <typename T>
void ReduceAs(SumOrder order, int first, std::size_t count, const std::vector<const void*>& from,
              const std::vector<Reduction>& reductions, void* to) {
  using W = Wide<T>;
  const int ranks = static_cast<int>(from.size());
  std::vector<typename W::Type> factors;
  for (const Reduction& reduction : reductions) {
    const void* scalar =
        reduction.device_scalar ? reduction.device_scalar : reduction.immediate.data();
    factors.push_back(reduction.scaled ? W::From(Load<T>(scalar)) : typename W::Type{1});
  }
  const auto element = [&](int rank, std::size_t i) {
    const auto place = static_cast<std::size_t>(rank);
    const T x = Load<T>(static_cast<const char*>(from[place]) + i * sizeof(T));
    return reductions[place].scaled ? W::From(W::To(W::From(x) * factors[place])) : W::From(x);
  };
  const int begin = order == SumOrder::kRing ? first : 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto sum = element(begin, i);
    for (int hop = 1; hop < ranks; ++hop) {
      sum = Combine<T>(reductions[0].op, element((begin + hop) % ranks, i), sum);
      if (order == SumOrder::kRing) sum = W::From(W::To(sum));
    }
    const T result = W::To(sum);
    std::memcpy(static_cast<char*>(to) + i * sizeof(T), &result, sizeof result);
  }
}

template <typename T>
Reduction AverageAs(int ranks) {
  Reduction reduction{.scaled = true};
  T factor;
  if constexpr (std::is_integral_v<T>) {
    factor = T{1};  // NCCL divides the sum instead; checked away by the caller
  } else {
    factor = Wide<T>::To(static_cast<typename Wide<T>::Type>(1.0 / ranks));
  }
  std::memcpy(reduction.immediate.data(), &factor, sizeof factor);
  return reduction;
}

// Calls `f` with a null pointer to the element type.
template <typename F>
void WithType(ncclDataType_t type, F f) {
  switch (type) {
    case ncclInt8:
      return f(static_cast<std::int8_t*>(nullptr));
    case ncclUint8:
      return f(static_cast<std::uint8_t*>(nullptr));
    case ncclInt32:
      return f(static_cast<std::int32_t*>(nullptr));
    case ncclUint32:
      return f(static_cast<std::uint32_t*>(nullptr));
    case ncclInt64:
      return f(static_cast<std::int64_t*>(nullptr));
    case ncclUint64:
      return f(static_cast<std::uint64_t*>(nullptr));
    case ncclFloat16:
      return f(static_cast<__half*>(nullptr));
    case ncclFloat32:
      return f(static_cast<float*>(nullptr));
    case ncclFloat64:
      return f(static_cast<double*>(nullptr));
    case ncclBfloat16:
      return f(static_cast<__nv_bfloat16*>(nullptr));
    default:
      return;
  }
}

constexpr struct {
  const char* name;
  std::size_t bytes;
} kTypes[ncclNumTypes] = {{"i8", 1},  {"u8", 1},   {"i32", 4},  {"u32", 4},
                          {"i64", 8}, {"u64", 8},  {"f16", 2},  {"f32", 4},
                          {"f64", 8}, {"bf16", 2}, {"e4m3", 1}, {"e5m2", 1}};

bool Valid(ncclDataType_t type) { return type >= 0 && type < ncclNumTypes; }

}  // namespace

std::size_t SizeOf(ncclDataType_t type) { return Valid(type) ? kTypes[type].bytes : 0; }

const char* Name(ncclDataType_t type) { return Valid(type) ? kTypes[type].name : "invalid"; }

bool CanReduce(ncclDataType_t type) {
  return Valid(type) && type != ncclFloat8e4m3 && type != ncclFloat8e5m2;
}

Reduction Average(ncclDataType_t type, int ranks) {
  Reduction reduction;
  WithType(type, [&](auto* t) { reduction = AverageAs<std::decay_t<decltype(*t)>>(ranks); });
  return reduction;
}

void Reduce(ncclDataType_t type, SumOrder order, int first, std::size_t count,
            const std::vector<const void*>& from, const std::vector<Reduction>& reductions,
            void* to) {
  WithType(type, [&](auto* t) {
    ReduceAs<std::decay_t<decltype(*t)>>(order, first, count, from, reductions, to);
  });
}

}  // namespace weft::fakes::nccl
