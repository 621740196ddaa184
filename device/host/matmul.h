// Dense products on the CPU through oneDNN: selection, caching and execution of its primitives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/math.h"

namespace weft::device {

struct MatMulOptions {
  int threads = 1;
  // Whether 16-bit operands may be given to the library as they are. Otherwise, and where the CPU
  // lacks what the library needs for them, they are widened to fp32 and the result is rounded.
  bool native_halves = true;
  // Symmetric results with fewer rows are computed in full and then mirrored: below this the
  // panels are too small to be efficient.
  std::int64_t min_triangle_rows = 256;
};

// One product's compiled form, for any data pointers. Immutable; Run is thread-safe.
class MatMulPlan {
 public:
  virtual ~MatMulPlan() = default;

  // Runs on the calling thread and its OpenMP team.
  virtual absl::Status Run(const void* a, const void* b, const void* c, void* d) const = 0;
};

// Thread-safe.
class MatMulCache {
 public:
  explicit MatMulCache(const MatMulOptions& options) : options_(options) {}

  // The plan of `product`, made on the first call for its form. Requires a checked product whose
  // A, B and D are not empty.
  absl::StatusOr<std::shared_ptr<const MatMulPlan>> Get(const Product& product);

 private:
  const MatMulOptions options_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const MatMulPlan>> plans_;
};

// Name and version of the library that is loaded: "oneDNN 3.1.1".
std::string MatMulLibrary();

}  // namespace weft::device
