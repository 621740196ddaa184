// Newton-Schulz on a device: executes a recipe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "update/recipe.h"
#include "weft/device.h"
#include "weft/update.h"

namespace weft::update {

// For matrices of one shape. Thread-compatible: runs on several streams need workspaces of their
// own and calls ordered by the caller.
class NewtonSchulz {
 public:
  // Prepares every product of the run for `batch` matrices of rows x cols. InvalidArgument as
  // Validate(). `device` must outlive it.
  static absl::StatusOr<std::unique_ptr<NewtonSchulz>> Create(Device& device,
                                                              const NewtonSchulzOptions& options,
                                                              std::int64_t rows, std::int64_t cols,
                                                              std::int64_t batch = 1);

  const Recipe& recipe() const { return recipe_; }

  // Device memory that one run needs, to be 64-byte aligned; 0 for empty matrices.
  std::size_t workspace_bytes() const { return workspace_bytes_; }

  // direction = NS(update); both fp32, dense rows x cols, `batch` of them, the same or without
  // overlap.
  // Runs on one stream may share a workspace. The first run in a workspace records the products
  // there (Device::Record()); a run in another one records them anew.
  absl::Status Enqueue(Stream& stream, const float* update, float* direction, void* workspace);
  // The same for matrices of that shape and number with other strides.
  absl::Status Enqueue(Stream& stream, const Matrix& update, const Matrix& direction,
                       void* workspace);

 private:
  NewtonSchulz(Device& device, const NewtonSchulzOptions& options, Recipe recipe, std::int64_t rows,
               std::int64_t cols, std::int64_t batch);

  Matrix Operand(update::Operand operand, void* workspace) const;
  Product ProductOf(const RecipeStep& step, void* workspace) const;

  absl::Status EnqueueProducts(Stream& stream, void* workspace) const;

  Device& device_;
  const NewtonSchulzOptions options_;
  const Recipe recipe_;
  const std::int64_t rows_, cols_, batch_;
  std::array<std::size_t, kOperandCount> offsets_ = {};
  std::size_t workspace_bytes_ = 0;
  // Between the input's norm and the output's conversion, which touch the matrix's own memory.
  std::unique_ptr<Replay> products_;
  const void* products_in_ = nullptr;
};

}  // namespace weft::update
