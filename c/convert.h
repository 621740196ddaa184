// Configurations of the C ABI as the options of the C++ library.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "weft/c/types.h"
#include "weft/checkpoint.h"
#include "weft/runtime.h"

namespace weft::c {

absl::StatusOr<MatrixSpec> SpecOf(const weftMatrixConfig_t* config);
// On a transport of `world_size` ranks.
absl::StatusOr<RuntimeOptions> OptionsOf(const weftRuntimeConfig_t* config, int world_size);

struct CheckpointOptions {
  SaveOptions save;
  LoadOptions load;
  ExportOptions exported;
};
absl::StatusOr<CheckpointOptions> OptionsOf(const weftCheckpointConfig_t* config);

// `count` entries at `data`.
template <typename T>
absl::StatusOr<std::vector<T>> ListOf(const T* data, std::int64_t count, const char* field) {
  if (count < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the length of ", field, " is ", count));
  }
  if (count > 0 && data == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is a null pointer with a length of ", count));
  }
  return std::vector<T>(data, data + count);
}

}  // namespace weft::c
