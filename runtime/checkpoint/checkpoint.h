// One rank's part in saving, loading, exporting and importing: between steps, when nothing writes
// state or weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/description.h"
#include "runtime/checkpoint/index.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/source.h"
#include "runtime/communicators.h"
#include "runtime/memory.h"
#include "weft/device.h"
#include "weft/runtime.h"

namespace weft::runtime {

class Checkpoint {
 public:
  struct Context {
    Device& device;
    const Plan& plan;
    const std::vector<MatrixSpec>& specs;
    const Memory& memory;
    Communicators& communicators;
    int rank;
  };

  explicit Checkpoint(const Context& context)
      : context_(context), layout_(context.plan, context.specs) {}

  // Collective. `own` as this rank has it, without kAppliedSteps; on all ranks rank 0's, with them.
  // FailedPrecondition, on all, where ranks stand at different steps.
  absl::StatusOr<Description> Complete(Description own);
  // Collective; as Runtime::Save().
  absl::Status Save(const std::string& folder, const SaveOptions& options,
                    const Description& description);
  // As Runtime::ExportState(); null: without a description.
  absl::StatusOr<ExportedState> Export(const ExportOptions& options,
                                       const Description* description);
  // Whether Take() can go through: the model is this one, and everything that this rank reads is
  // there and undamaged. Changes nothing. Options that differ are told in `warnings` where the load
  // accepts them.
  absl::Status Check(StateSource& source, const LoadOptions& options,
                     std::vector<std::string>& warnings);
  // Writes state, counts on the device, and weights.
  absl::Status Take(StateSource& source, const LoadOptions& options);

 private:
  // Device memory of a row that is held here.
  std::byte* Place(const Tensor& tensor, std::int64_t row) const;
  // Calls `take` with the rows' bytes in blocks of `block_bytes`, the last one shorter.
  absl::Status CopyOut(const Tensor& tensor, RowRange rows, std::int64_t block_bytes,
                       absl::FunctionRef<absl::Status(absl::Span<const std::byte>)> take);
  absl::Status WriteShard(const std::string& folder, const std::string& set,
                          const std::vector<Tensor>& tensors, const SaveOptions& options,
                          const Description& description, ShardReport& report);
  // On rank 0, from all ranks' reports.
  absl::Status WriteIndex(const std::string& folder, const std::vector<std::string>& reports,
                          Index& index) const;

  const Context context_;
  const StateLayout layout_;
  std::vector<std::byte> block_;
};

}  // namespace weft::runtime
