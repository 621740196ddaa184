// Newton-Schulz on the parts of a stored matrix, equal ones as one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "update/newton_schulz.h"
#include "update/parts.h"
#include "weft/device.h"
#include "weft/update.h"

namespace weft::update {

// Runs and workspaces as NewtonSchulz. The batches run one after another in one workspace. They
// need at most seven matrices of the stored size in the operand type, as a square one in one piece
// does, and a copy in fp32 of parts of several blocks.
class PartRuns {
 public:
  // For a matrix whose rows have `row_stride` elements.
  static absl::StatusOr<std::unique_ptr<PartRuns>> Create(Device& device,
                                                          const NewtonSchulzOptions& options,
                                                          const std::vector<Part>& parts,
                                                          std::int64_t row_stride);

  // For `batch` whole matrices of rows x cols, one behind the other.
  static absl::StatusOr<std::unique_ptr<PartRuns>> OfWholes(Device& device,
                                                            const NewtonSchulzOptions& options,
                                                            std::int64_t rows, std::int64_t cols,
                                                            std::int64_t batch);

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  // direction = NS(update) for each part, both fp32 and without overlap, as the parts lie in the
  // stored matrix; what belongs to no part is neither read nor written.
  absl::Status Enqueue(Stream& stream, const float* update, float* direction, void* workspace);

 private:
  absl::Status Add(const NewtonSchulzOptions& options, const EqualParts& parts);

  struct Run {
    std::unique_ptr<NewtonSchulz> newton_schulz;
    EqualParts parts;
  };

  absl::Status EnqueueInPlace(Stream& stream, const Run& run, const float* update, float* direction,
                              void* workspace) const;
  absl::Status EnqueuePacked(Stream& stream, const Run& run, const float* update, float* direction,
                             void* workspace) const;

  Device* device_ = nullptr;
  std::int64_t row_stride_ = 0;
  std::vector<Run> runs_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace weft::update
