// What the collectives of the fake NCCL compute, against sums in double.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>

#include "tests/fakes/ranks.h"
#include "tests/support/seed.h"

namespace weft::fakes {
namespace {

template <typename T>
struct Type;
#define WEFT_TYPE(T, code, relative_error)                      \
  template <>                                                   \
  struct Type<T> {                                              \
    static constexpr ncclDataType_t kCode = code;               \
    static constexpr double kRounding = relative_error;         \
    static double Value(T x) { return static_cast<double>(x); } \
    static T Of(double x) { return static_cast<T>(x); }         \
  }
WEFT_TYPE(std::int8_t, ncclInt8, 0);
WEFT_TYPE(std::uint8_t, ncclUint8, 0);
WEFT_TYPE(std::int32_t, ncclInt32, 0);
WEFT_TYPE(std::uint32_t, ncclUint32, 0);
WEFT_TYPE(std::int64_t, ncclInt64, 0);
WEFT_TYPE(std::uint64_t, ncclUint64, 0);
WEFT_TYPE(float, ncclFloat32, 0x1p-24);
WEFT_TYPE(double, ncclFloat64, 0x1p-53);
template <>
struct Type<__half> {
  static constexpr ncclDataType_t kCode = ncclFloat16;
  static constexpr double kRounding = 0x1p-11;
  static double Value(__half x) { return __half2float(x); }
  static __half Of(double x) { return __float2half_rn(static_cast<float>(x)); }
};
template <>
struct Type<__nv_bfloat16> {
  static constexpr ncclDataType_t kCode = ncclBfloat16;
  static constexpr double kRounding = 0x1p-8;
  static double Value(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __nv_bfloat16 Of(double x) { return __float2bfloat16_rn(static_cast<float>(x)); }
};

// Of integers so small that their products and sums fit eight bits; of both signs where there are.
template <typename T>
T Draw(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<int>(random() % 4) - (std::is_signed_v<T> ? 2 : 0));
  } else {
    return Type<T>::Of(std::ldexp(static_cast<double>(random() % 4096) - 2048, -10));
  }
}

struct Case {
  int ranks = 0;
  std::size_t count = 0;  // of a block
  int root = 0;
  ncclRedOp_t op = ncclSum;
  bool in_place = false;
  SumOrder order = SumOrder::kRing;
};

Case DrawCase(std::mt19937_64& random) {
  Case drawn;
  drawn.ranks = 1 + static_cast<int>(random() % 4);
  drawn.count = 1 + random() % 9;
  drawn.root = static_cast<int>(random() % static_cast<std::uint64_t>(drawn.ranks));
  drawn.op = static_cast<ncclRedOp_t>(random() % 4);
  drawn.in_place = random() % 2 == 0;
  drawn.order = random() % 2 == 0 ? SumOrder::kRing : SumOrder::kAscending;
  return drawn;
}

template <typename T>
using PerRank = std::vector<std::vector<T>>;

template <typename T>
PerRank<T> DrawInputs(std::mt19937_64& random, int ranks, std::size_t count) {
  PerRank<T> inputs(static_cast<std::size_t>(ranks));
  for (auto& input : inputs) {
    for (std::size_t i = 0; i < count; ++i) input.push_back(Draw<T>(random));
  }
  return inputs;
}

enum class Collective { kReduce, kBroadcast, kAllGather, kReduceScatter, kAllReduce };

ncclResult_t CallNccl(Collective what, const Case& c, const void* send, void* recv,
                      ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  switch (what) {
    case Collective::kReduce:
      return ncclReduce(send, recv, c.count, type, c.op, c.root, comm, stream);
    case Collective::kBroadcast:
      return ncclBroadcast(send, recv, c.count, type, c.root, comm, stream);
    case Collective::kAllGather:
      return ncclAllGather(send, recv, c.count, type, comm, stream);
    case Collective::kReduceScatter:
      return ncclReduceScatter(send, recv, c.count, type, c.op, comm, stream);
    case Collective::kAllReduce:
      return ncclAllReduce(send, recv, c.count, type, c.op, comm, stream);
  }
  return ncclInternalError;
}

// Every member's receive buffer after the collective; empty where it has none.
template <typename T>
PerRank<T> RunCollective(Collective what, const Case& c, const PerRank<T>& inputs) {
  Reset({.devices = c.ranks, .sum_order = c.order});
  const ncclUniqueId id = NewId();
  PerRank<T> outputs(inputs.size());
  RunRanks(c.ranks, [&](int rank) {
    const std::size_t ranks = inputs.size(), place = static_cast<std::size_t>(rank);
    const std::size_t out = c.count * (what == Collective::kAllGather ? ranks : 1);
    // In place: where NCCL says that the smaller buffer lies in the larger.
    Array<T> whole(std::max(inputs[place].size(), out));
    Array<T> input(inputs[place]);
    T *send = input.data(), *recv = whole.data();
    if (c.in_place) {
      const std::size_t shift = place * c.count;
      send = whole.data() + (what == Collective::kAllGather ? shift : 0);
      recv = whole.data() + (what == Collective::kReduceScatter ? shift : 0);
      EXPECT_EQ(cudaMemcpy(send, input.data(), inputs[place].size() * sizeof(T),
                           cudaMemcpyDeviceToDevice),
                cudaSuccess);
    }
    const bool receives = what != Collective::kReduce || rank == c.root;
    if (!receives && !c.in_place) recv = nullptr;
    const ncclComm_t comm = Join(id, c.ranks, rank, "all");
    const cudaStream_t stream = NewStream("work");
    EXPECT_EQ(CallNccl(what, c, send, recv, Type<T>::kCode, comm, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    if (receives) {
      outputs[place].resize(out);
      EXPECT_EQ(cudaMemcpy(outputs[place].data(), recv, out * sizeof(T), cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  });
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
  return outputs;
}

// Element `i` of all inputs together; `size`: what its rounding errors are relative to.
template <typename T>
double Expected(const Case& c, const PerRank<T>& inputs, std::size_t i, double* size) {
  double result = Type<T>::Value(inputs[0][i]);
  *size = std::abs(result);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const double x = Type<T>::Value(inputs[rank][i]);
    switch (c.op) {
      case ncclProd:
        result *= x;
        *size *= std::abs(x);
        break;
      case ncclMax:
        result = std::max(result, x);
        break;
      case ncclMin:
        result = std::min(result, x);
        break;
      default:
        result += x;
        *size += std::abs(x);
    }
  }
  if (c.op == ncclMax || c.op == ncclMin) *size = 0;
  return result;
}

template <typename T>
void ExpectReduced(const Case& c, const PerRank<T>& inputs, std::size_t i, T got) {
  double size = 0;
  const double expected = Expected(c, inputs, i, &size);
  // Ascending: in fp32, a fourth of a rounding of what is narrower, then rounded once.
  const double roundings = c.order == SumOrder::kRing || sizeof(T) >= 4 ? c.ranks : 1.01;
  // Products of halves can be too small for a relative error.
  const double smallest = std::is_same_v<T, __half> && size > 0 ? c.ranks * 0x1p-25 : 0;
  EXPECT_NEAR(Type<T>::Value(got), expected, roundings * Type<T>::kRounding * size + smallest)
      << "element " << i << ", op " << c.op << ", " << c.ranks << " ranks";
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
class NcclResults : public ::testing::Test {
 protected:
  static constexpr int kCases = 20;
  // `check`: of a case, its inputs and outputs.
  template <typename Check>
  void ForCases(Collective what, std::uint64_t salt, Check check) {
    std::mt19937_64 random(testing::Seed() + salt);
    for (int i = 0; i < kCases; ++i) {
      const Case c = DrawCase(random);
      const std::size_t blocks =
          what == Collective::kReduceScatter ? static_cast<std::size_t>(c.ranks) : 1;
      const PerRank<T> inputs = DrawInputs<T>(random, c.ranks, c.count * blocks);
      check(c, inputs, RunCollective(what, c, inputs));
    }
  }
};
using Types = ::testing::Types<std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t,
                               std::uint64_t, float, double, __half, __nv_bfloat16>;
TYPED_TEST_SUITE(NcclResults, Types);

TYPED_TEST(NcclResults, AReductionEndsAtItsRoot) {
  this->ForCases(Collective::kReduce, 1,
                 [](const Case& c, const auto& inputs, const auto& outputs) {
                   for (std::size_t i = 0; i < c.count; ++i) {
                     ExpectReduced(c, inputs, i, outputs[static_cast<std::size_t>(c.root)][i]);
                   }
                 });
}

TYPED_TEST(NcclResults, AnAllReductionIsTheSameBitsForAll) {
  this->ForCases(Collective::kAllReduce, 2,
                 [](const Case& c, const auto& inputs, const auto& outputs) {
                   for (std::size_t i = 0; i < c.count; ++i) {
                     ExpectReduced(c, inputs, i, outputs[0][i]);
                   }
                   for (const auto& output : outputs) EXPECT_TRUE(SameBits(output, outputs[0]));
                 });
}

TYPED_TEST(NcclResults, EachGetsItsBlockOfAReduceScatter) {
  this->ForCases(Collective::kReduceScatter, 3,
                 [](const Case& c, const auto& inputs, const auto& outputs) {
                   for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
                     for (std::size_t i = 0; i < c.count; ++i) {
                       auto blocks = inputs;
                       for (auto& block : blocks) {
                         block.erase(block.begin(),
                                     block.begin() + static_cast<std::ptrdiff_t>(rank * c.count));
                       }
                       ExpectReduced(c, blocks, i, outputs[rank][i]);
                     }
                   }
                 });
}

TYPED_TEST(NcclResults, ABroadcastIsTheRootsBits) {
  this->ForCases(Collective::kBroadcast, 4,
                 [](const Case& c, const auto& inputs, const auto& outputs) {
                   for (const auto& output : outputs) {
                     EXPECT_TRUE(SameBits(output, inputs[static_cast<std::size_t>(c.root)]));
                   }
                 });
}

TYPED_TEST(NcclResults, AnAllGatherIsAllBlocksInOrder) {
  this->ForCases(Collective::kAllGather, 5,
                 [](const Case&, const auto& inputs, const auto& outputs) {
                   auto all = inputs[0];
                   for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
                     all.insert(all.end(), inputs[rank].begin(), inputs[rank].end());
                   }
                   for (const auto& output : outputs) EXPECT_TRUE(SameBits(output, all));
                 });
}

// 256 + 1 = 256 in bf16, 1 + 1 + 256 = 258: whose turn it is shows.
TEST(NcclOrder, AReductionGoesAroundTheRingAndEndsAtItsRoot) {
  const auto bf16 = [](double x) { return std::vector{Type<__nv_bfloat16>::Of(x)}; };
  const PerRank<__nv_bfloat16> inputs{bf16(1), bf16(256), bf16(1)};
  const auto reduce = [&](int root, SumOrder order) {
    const Case c{.ranks = 3, .count = 1, .root = root, .order = order};
    const auto outputs = RunCollective(Collective::kReduce, c, inputs);
    return Type<__nv_bfloat16>::Value(outputs[static_cast<std::size_t>(root)][0]);
  };
  EXPECT_EQ(reduce(0, SumOrder::kRing), 256);  // 256 + 1, + 1
  EXPECT_EQ(reduce(1, SumOrder::kRing), 258);  // 1 + 1, + 256
  EXPECT_EQ(reduce(2, SumOrder::kRing), 256);  // 1 + 256, + 1
  for (int root = 0; root < 3; ++root) EXPECT_EQ(reduce(root, SumOrder::kAscending), 258);
}

// Chunk c of an all-reduction ends at rank c.
TEST(NcclOrder, AnAllReductionIsCutIntoAChunkForEachRank) {
  const auto all = [](double x) { return std::vector(3, Type<__nv_bfloat16>::Of(x)); };
  const PerRank<__nv_bfloat16> inputs{all(1), all(256), all(1)};
  for (const Collective what : {Collective::kAllReduce, Collective::kReduceScatter}) {
    const bool whole = what == Collective::kAllReduce;
    const Case c{.ranks = 3, .count = whole ? 3U : 1U, .in_place = false};
    const auto outputs = RunCollective(what, c, inputs);
    std::vector<double> got;
    for (std::size_t i = 0; i < 3; ++i) {
      got.push_back(Type<__nv_bfloat16>::Value(whole ? outputs[0][i] : outputs[i][0]));
    }
    EXPECT_THAT(got, ::testing::ElementsAre(256, 258, 256));
  }
}

TEST(NcclResult, AScaledSumTakesEachMembersFactor) {
  for (const bool on_device : {false, true}) {
    Reset({.devices = 2});
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](int rank) {
      const ncclComm_t comm = Join(id, 2, rank, "scaled");
      const cudaStream_t stream = NewStream("work");
      Array<float> x(std::vector<float>{1, 2}),
          factor(std::vector<float>{rank == 0 ? 10.F : 100.F});
      float immediate = rank == 0 ? 10.F : 100.F;
      ncclRedOp_t op;
      EXPECT_EQ(
          ncclRedOpCreatePreMulSum(&op, on_device ? factor.data() : &immediate, ncclFloat32,
                                   on_device ? ncclScalarDevice : ncclScalarHostImmediate, comm),
          ncclSuccess);
      immediate = 0;
      EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 2, ncclFloat32, op, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
      EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 2, ncclFloat32, op, comm, stream),
                ncclInvalidArgument);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_THAT(x.Read(), ::testing::ElementsAre(110, 220));
      EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 2, ncclFloat32, ncclAvg, comm, stream),
                ncclSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_THAT(x.Read(), ::testing::ElementsAre(110, 220));
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    });
    CheckLeaks();
    EXPECT_EQ(FaultText(), "");
  }
}

// A ring of messages in a group: nobody's send waits for another's group to end.
TEST(NcclResult, GroupedMessagesGoAround) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Reset({.devices = 3, .seed = seed});
    const ncclUniqueId id = NewId();
    RunRanks(3, [&](int rank) {
      const ncclComm_t comm = Join(id, 3, rank, "ring");
      const cudaStream_t stream = NewStream("work");
      Array<int> mine(std::vector<int>{rank, 10 + rank}), from_left(std::size_t{2});
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        EXPECT_EQ(ncclSend(mine.data(), 2, ncclInt32, (rank + 1) % 3, comm, stream), ncclSuccess);
        EXPECT_EQ(ncclRecv(from_left.data(), 2, ncclInt32, (rank + 2) % 3, comm, stream),
                  ncclSuccess);
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      }
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_THAT(from_left.Read(), ::testing::ElementsAre((rank + 2) % 3, 10 + (rank + 2) % 3));
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    });
    CheckLeaks();
    EXPECT_EQ(FaultText(), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace weft::fakes
