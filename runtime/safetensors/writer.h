// Writing safetensors files whose data do not lie in host memory at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft::safetensors {

struct TensorSource {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  // Calls `put` with the tensor's bytes, in order, in any parts, and returns its errors.
  std::function<absl::Status(absl::FunctionRef<absl::Status(absl::Span<const std::byte>)> put)>
      write;
};

// As WriteSafetensors(); the size of the file. Sources are asked one after another, in the order of
// the data.
absl::StatusOr<std::uint64_t> WriteFrom(const std::string& path,
                                        const std::vector<TensorSource>& sources,
                                        const std::map<std::string, std::string>& metadata);

}  // namespace weft::safetensors
