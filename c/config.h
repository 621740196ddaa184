// Structs of the C ABI as this library knows them, whatever header the caller was compiled with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "weft/c/types.h"

namespace weft::c {

// No struct of any version is larger; a `size` beyond it is no size.
inline constexpr std::size_t kLargestStruct = 64 << 10;
// The start that all configurations share.
inline constexpr std::size_t kHeaderBytes = sizeof(std::size_t) + 2 * sizeof(std::uint32_t);

// Whether what a newer header has beyond `known` bytes says nothing.
inline bool RestIsZero(const void* given, std::size_t known, std::size_t size) {
  const auto* const bytes = static_cast<const unsigned char*>(given);
  return std::all_of(bytes + known, bytes + size, [](unsigned char byte) { return byte == 0; });
}

// `given` over `defaults`, which is the type's initializer: fields that the caller's header did not
// have keep their defaults. InvalidArgument speaks of `type`.
template <typename Config>
absl::StatusOr<Config> ReadConfig(const Config* given, const Config& defaults, const char* type) {
  static_assert(std::is_trivially_copyable_v<Config>);
  if (given == nullptr) return absl::InvalidArgumentError(absl::StrCat(type, " is a null pointer"));
  // The caller's struct may be shorter than ours: nothing behind its size is touched.
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < kHeaderBytes || size > kLargestStruct) {
    return absl::InvalidArgumentError(absl::StrCat(
        type, ".size is ", size, ", which no version has; begin with the type's initializer"));
  }
  std::uint32_t header[2];
  std::memcpy(header, reinterpret_cast<const unsigned char*>(given) + sizeof(size), sizeof(header));
  if (header[0] != WEFT_CONFIG_MAGIC) {
    return absl::InvalidArgumentError(
        absl::StrCat(type, ".magic is wrong; begin with the type's initializer"));
  }
  if (header[1] == 0) return absl::InvalidArgumentError(absl::StrCat(type, ".version is 0"));
  if (size > sizeof(Config) && !RestIsZero(given, sizeof(Config), size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        type, " has ", size, " bytes of version ", header[1], " and sets fields beyond the ",
        sizeof(Config), " that this library knows; use a newer library"));
  }
  Config config = defaults;
  std::memcpy(&config, given, std::min(size, sizeof(Config)));
  config.size = sizeof(Config);
  return config;
}

// Null: the defaults.
template <typename Config>
absl::StatusOr<Config> ReadOptional(const Config* given, const Config& defaults, const char* type) {
  if (given == nullptr) return defaults;
  return ReadConfig(given, defaults, type);
}

// A struct of reports.h into the caller's, which tells its size: what the caller does not know is
// left out, what it alone knows is zero.
template <typename Report>
absl::Status WriteReport(const Report& report, Report* to, const char* type) {
  static_assert(std::is_trivially_copyable_v<Report>);
  if (to == nullptr) return absl::InvalidArgumentError(absl::StrCat(type, " is a null pointer"));
  std::size_t size = 0;
  std::memcpy(&size, to, sizeof(size));
  if (size < sizeof(size) || size > kLargestStruct) {
    return absl::InvalidArgumentError(
        absl::StrCat(type, ".size is ", size, "; set it to sizeof(", type, ")"));
  }
  auto* const bytes = reinterpret_cast<unsigned char*>(to);
  std::memset(bytes + sizeof(size), 0, size - sizeof(size));
  std::memcpy(bytes + sizeof(size), reinterpret_cast<const unsigned char*>(&report) + sizeof(size),
              std::min(size, sizeof(Report)) - sizeof(size));
  return absl::OkStatus();
}

// A number of an enumeration whose values are first, first + 1, ... last.
template <typename Enum>
absl::StatusOr<Enum> EnumOf(std::int32_t value, Enum last, const char* field) {
  if (value >= 0 && value <= static_cast<std::int32_t>(last)) return static_cast<Enum>(value);
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", not one of 0 to ", static_cast<std::int32_t>(last)));
}

inline absl::StatusOr<bool> FlagOf(std::int32_t value, const char* field) {
  if (value == 0 || value == 1) return value == 1;
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", not 0 or 1"));
}

// A text of the caller's.
inline absl::StatusOr<std::string> TextOf(const char* text, const char* field) {
  if (text != nullptr) return std::string(text);
  return absl::InvalidArgumentError(absl::StrCat(field, " is a null pointer"));
}

}  // namespace weft::c
