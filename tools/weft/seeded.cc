#include "tools/weft/seeded.h"

#include "tools/weft/numbers.h"

namespace weft::tool {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

std::uint64_t Absorb(std::uint64_t state, std::uint64_t value) {
  return Mix(state * kGolden + value + 1);
}

std::uint64_t AbsorbText(std::uint64_t state, std::string_view text) {
  for (const char c : text) state = Absorb(state, static_cast<unsigned char>(c));
  return Absorb(state, text.size());
}

}  // namespace

SeededValues::SeededValues(std::uint64_t seed, std::string_view purpose, std::string_view name,
                           std::int64_t step, int rank, double deviation) {
  key_ = Absorb(Mix(seed + kGolden), static_cast<std::uint64_t>(step));
  key_ = Absorb(key_, static_cast<std::uint64_t>(rank));
  key_ = AbsorbText(AbsorbText(key_, purpose), name);
  // Each of the four parts is uniform on 0..65535: the sum's variance is 4 * 65536^2 / 12.
  factor_ = deviation * 1.7320508075688772 / 65536.0;
}

float SeededValues::operator[](std::int64_t index) const {
  const std::uint64_t bits = Mix(key_ + static_cast<std::uint64_t>(index) * kGolden);
  const auto sum = static_cast<std::int64_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                             (bits >> 32 & 0xffff) + (bits >> 48));
  return static_cast<float>(static_cast<double>(sum - std::int64_t{2} * 65535) * factor_);
}

void SeededValues::Fill(std::int64_t first, std::int64_t count, DType type, void* to) const {
  switch (type) {
    case DType::kF32: {
      auto* floats = static_cast<float*>(to);
      for (std::int64_t i = 0; i < count; ++i) floats[i] = (*this)[first + i];
      return;
    }
    case DType::kBF16: {
      auto* bits = static_cast<std::uint16_t*>(to);
      for (std::int64_t i = 0; i < count; ++i) bits[i] = FloatToBf16((*this)[first + i]);
      return;
    }
    case DType::kF16: {
      auto* bits = static_cast<std::uint16_t*>(to);
      for (std::int64_t i = 0; i < count; ++i) bits[i] = FloatToHalf((*this)[first + i]);
      return;
    }
  }
}

}  // namespace weft::tool
