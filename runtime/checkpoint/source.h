// Where a load gets its tensors from: the files of a checkpoint, or what the trainer gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/description.h"
#include "runtime/checkpoint/layout.h"

namespace weft::runtime {

class StateSource {
 public:
  virtual ~StateSource() = default;

  // "checkpoint in 'folder'", for messages.
  virtual const std::string& subject() const = 0;
  // What tells it from every other, so that ranks can compare.
  virtual const std::string& identity() const = 0;
  virtual const Description& description() const = 0;

  // Calls `take` with the bytes of the tensor's rows, checked, in parts that together are the range
  // once; `begin` counts from the tensor's first byte. InvalidArgument or DataLoss names the
  // tensor, or the file at fault; else the error of `take`.
  using Take = absl::FunctionRef<absl::Status(std::int64_t begin, absl::Span<const std::byte>)>;
  virtual absl::Status Read(const Tensor& tensor, RowRange rows, Take take) = 0;
};

// The checkpoint in a folder. NotFound where there is none, InvalidArgument where its index is
// damaged. Its files are opened, and compared with the index, when something of them is read.
absl::StatusOr<std::unique_ptr<StateSource>> OpenCheckpoint(const std::string& folder);

// What Runtime::ImportState() is given; `state` must outlive it.
absl::StatusOr<std::unique_ptr<StateSource>> OpenExported(const ExportedState& state);

}  // namespace weft::runtime
