#include "tests/collectives/steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostream>
#include <sstream>

#include "tests/support/halves.h"

namespace weft::testing {
namespace {

bool Reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

bool HasRoot(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

bool PerRank(Kind kind) {
  return kind == Kind::kAllGather || kind == Kind::kReduceScatter || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

bool Receives(const Step& step, int rank) {
  return !(step.kind == Kind::kReduce || step.kind == Kind::kGather) || rank == step.root;
}

std::int64_t Unit(const Step& step) {
  return Reduces(step.kind) ? static_cast<std::int64_t>(SizeOf(step.dtype)) : 1;
}

std::int64_t Before(const Step& step, int rank) {
  return std::accumulate(step.counts.begin(), step.counts.begin() + rank, std::int64_t{0});
}

std::int64_t Total(const Step& step) {
  if (!PerRank(step.kind)) return step.counts[0];
  return Before(step, static_cast<int>(step.counts.size()));
}

double ToDouble(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kF32: {
      float value = 0;
      std::memcpy(&value, at, 4);
      return value;
    }
    case DType::kBF16:
    case DType::kF16: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, 2);
      return HalfValue(dtype, bits);
    }
  }
  return NAN;
}

// What `rank` contributes: Total() or its own count of units.
std::vector<std::byte> Contribution(const Step& step, int rank) {
  std::mt19937_64 random(step.seed * 1000003 + rank);
  const bool own_part = step.kind == Kind::kAllGather || step.kind == Kind::kGather;
  const std::int64_t units = own_part ? step.counts[rank] : Total(step);
  std::vector<std::byte> bytes(units * Unit(step));
  if (!Reduces(step.kind)) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  std::uniform_real_distribution<float> real(-1, 1);
  std::uniform_int_distribution<int> whole(-8, 8);
  for (std::int64_t i = 0; i < units; ++i) {
    const float value = step.integers ? static_cast<float>(whole(random)) : real(random);
    switch (step.dtype) {
      case DType::kF32:
        std::memcpy(&bytes[i * 4], &value, 4);
        break;
      case DType::kBF16:
      case DType::kF16: {
        const std::uint16_t bits = HalfBits(step.dtype, value);
        std::memcpy(&bytes[i * 2], &bits, 2);
        break;
      }
    }
  }
  return bytes;
}

std::string VerifyReduced(const Step& step, const std::vector<std::vector<std::byte>>& sent,
                          int rank, const std::vector<std::byte>& got) {
  const std::int64_t unit = Unit(step);
  const bool scattered = step.kind == Kind::kReduceScatter;
  const std::int64_t first = scattered ? Before(step, rank) : 0;
  const std::int64_t count = scattered ? step.counts[rank] : step.counts[0];
  const auto ranks = static_cast<double>(sent.size());
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0;
    double magnitude = 0;
    double largest = -INFINITY;
    for (const std::vector<std::byte>& from : sent) {
      const double value = ToDouble(&from[(first + i) * unit], step.dtype);
      sum += value;
      magnitude += std::abs(value);
      largest = std::max(largest, value);
    }
    const double expected = step.op == ReduceOp::kSum ? sum : largest;
    // fp32 additions of `ranks` values, then one rounding where the type is narrower.
    double tolerance = ranks * std::ldexp(magnitude, -24);
    if (step.dtype != DType::kF32) {
      tolerance += RoundingError(step.dtype, std::abs(expected) + tolerance);
    }
    if (step.integers || step.op == ReduceOp::kMax) tolerance = 0;
    const double value = ToDouble(&got[i * unit], step.dtype);
    if (!(std::abs(value - expected) <= tolerance)) {
      std::ostringstream out;
      out << step << ": element " << i << " on rank " << rank << " is " << value << ", expected "
          << expected << " within " << tolerance;
      return out.str();
    }
  }
  return "";
}

std::vector<std::byte> ExpectedBytes(const Step& step,
                                     const std::vector<std::vector<std::byte>>& sent, int rank) {
  std::vector<std::byte> all;
  switch (step.kind) {
    case Kind::kBroadcast:
      return sent[step.root];
    case Kind::kScatter: {
      const auto begin = sent[step.root].begin() + Before(step, rank);
      return {begin, begin + step.counts[rank]};
    }
    default:
      for (const auto& part : sent) all.insert(all.end(), part.begin(), part.end());
      return all;
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Step& step) {
  static constexpr const char* kNames[] = {"all-reduce",     "reduce", "broadcast", "all-gather",
                                           "reduce-scatter", "gather", "scatter"};
  out << kNames[static_cast<int>(step.kind)] << " counts";
  for (const std::int64_t count : step.counts) out << ' ' << count;
  out << ' ' << Name(step.dtype) << (step.op == ReduceOp::kSum ? " sum" : " max") << " root "
      << step.root << (step.in_place ? " in place" : "") << (step.integers ? " integers" : "")
      << " seed " << step.seed;
  return out;
}

Step RandomStep(std::mt19937_64& random, int size) {
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  static constexpr int kLimits[] = {1, 2, 9, 70, 1500, 5000};
  Step step;
  step.kind = static_cast<Kind>(below(kKinds));
  const int limit = kLimits[below(6)];
  for (int rank = 0; rank < size; ++rank) step.counts.push_back(below(limit));
  step.dtype = kDTypes[below(kDTypes.size())];
  step.op = below(3) == 0 ? ReduceOp::kMax : ReduceOp::kSum;
  step.root = below(size);
  step.in_place = below(2) == 0;
  step.integers = below(3) == 0;
  step.seed = random() % 1000000;
  return step;
}

absl::Status Issue(const Step& step, Communicator& communicator, Stream& stream,
                   StepMemory& memory) {
  const int rank = communicator.rank();
  const std::int64_t unit = Unit(step);
  const bool receives = Receives(step, rank);
  const bool is_root = rank == step.root;
  memory.send = Contribution(step, rank);
  memory.in_place = step.in_place && receives &&
                    (step.kind == Kind::kAllReduce || step.kind == Kind::kReduce ||
                     step.kind == Kind::kAllGather || step.kind == Kind::kGather);
  const bool own_part_received = step.kind == Kind::kReduceScatter || step.kind == Kind::kScatter;
  const std::int64_t received = own_part_received ? step.counts[rank] : Total(step);
  memory.recv.assign(receives ? received * unit : 0, std::byte{0xab});
  if (step.kind == Kind::kBroadcast && is_root) memory.recv = memory.send;

  const void* send = memory.send.data();
  if (HasRoot(step.kind) && step.kind == Kind::kScatter && !is_root) send = nullptr;
  if (memory.in_place) {
    memory.own_offset = PerRank(step.kind) ? Before(step, rank) : 0;
    std::copy(memory.send.begin(), memory.send.end(), memory.recv.begin() + memory.own_offset);
    send = memory.recv.data() + memory.own_offset;
  }
  void* recv = receives ? memory.recv.data() : nullptr;
  const OpTag tag{"m", "test"};
  switch (step.kind) {
    case Kind::kAllReduce:
      return communicator.AllReduce(stream, send, recv, step.counts[0], step.dtype, step.op, tag);
    case Kind::kReduce:
      return communicator.Reduce(stream, send, recv, step.counts[0], step.dtype, step.op, step.root,
                                 tag);
    case Kind::kBroadcast:
      return communicator.Broadcast(stream, recv, step.counts[0], step.root, tag);
    case Kind::kAllGather:
      return communicator.AllGatherV(stream, send, recv, step.counts, tag);
    case Kind::kReduceScatter:
      return communicator.ReduceScatterV(stream, send, recv, step.counts, step.dtype, step.op, tag);
    case Kind::kGather:
      return communicator.GatherV(stream, send, recv, step.counts, step.root, tag);
    case Kind::kScatter:
      return communicator.ScatterV(stream, send, recv, step.counts, step.root, tag);
  }
  return absl::InternalError("no such kind");
}

std::string Verify(const Step& step, const std::vector<StepMemory>& memory) {
  const int size = static_cast<int>(memory.size());
  std::vector<std::vector<std::byte>> sent;
  for (int rank = 0; rank < size; ++rank) sent.push_back(Contribution(step, rank));
  std::ostringstream out;
  for (int rank = 0; rank < size; ++rank) {
    if (!memory[rank].in_place && memory[rank].send != sent[rank]) {
      out << step << ": send was changed on rank " << rank;
      return out.str();
    }
    if (!Receives(step, rank)) continue;
    if (Reduces(step.kind)) {
      std::string wrong = VerifyReduced(step, sent, rank, memory[rank].recv);
      if (!wrong.empty()) return wrong;
      if (step.kind == Kind::kAllReduce && memory[rank].recv != memory[0].recv) {
        out << step << ": ranks 0 and " << rank << " have different bits";
        return out.str();
      }
    } else if (memory[rank].recv != ExpectedBytes(step, sent, rank)) {
      out << step << ": wrong bytes on rank " << rank;
      return out.str();
    }
  }
  return "";
}

}  // namespace weft::testing
