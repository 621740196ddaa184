// Turns one op of the plan into work on its lane's stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/communicators.h"
#include "runtime/memory.h"
#include "runtime/parts.h"
#include "update/part_runs.h"
#include "update/row_norms.h"
#include "weft/device.h"
#include "weft/plan.h"
#include "weft/runtime.h"

namespace weft::runtime {

// What differs from step to step, of one matrix.
struct MatrixArguments {
  double lr = 0;
  double weight_decay = 0;
  const StepControl* control = nullptr;
  float* norm = nullptr;  // where its check leaves its finding
};

struct StepArguments {
  std::int64_t step = 0;
  absl::Span<const MatrixArguments> matrices;  // all of the plan's
  float* verdict = nullptr;                    // device memory; kVerdict reduces it in place
  std::int64_t verdict_count = 0;
};

class OpIssuer {
 public:
  // Prepares every kernel the plan needs here. All arguments must outlive it.
  static absl::StatusOr<std::unique_ptr<OpIssuer>> Create(Device& device, const Plan& plan,
                                                          const std::vector<MatrixSpec>& specs,
                                                          int rank, const Memory& memory,
                                                          const Communicators& communicators);

  // Runs NS once for every shape and kind that this rank orthogonalizes, on the zeros that its
  // buffers hold before the first step. Blocks.
  absl::Status WarmUp();

  // Enqueues the work of an op, or of two that run as one, on `stream` and returns. An error may
  // leave a part of an op on several matrices enqueued; the stream is to be failed then.
  absl::Status Issue(absl::Span<const std::int32_t> ids, Stream& stream,
                     const StepArguments& arguments);

 private:
  OpIssuer(Device& device, const Plan& plan, const std::vector<MatrixSpec>& specs, int rank,
           const Memory& memory, const Communicators& communicators)
      : device_(device),
        plan_(plan),
        specs_(specs),
        rank_(rank),
        memory_(memory),
        communicators_(communicators) {}

  // What a compute op handles of a matrix here, the same in every step.
  struct Rows {
    std::int64_t elements = 0;              // of the target, without padding
    const std::byte* source = nullptr;      // where the rows it handles begin
    std::vector<Piece> pieces;              // kApply: each has its own scale
    std::optional<update::RowNorms> norms;  // row norms, and the squares that they need
  };
  struct Extent {
    std::vector<Rows> rows;     // compute: of each matrix of the op
    std::int64_t elements = 0;  // all-reduces, reduces and broadcasts: what they carry
    // Gathers and scatters: bytes, and reduce-scatters: elements, of each member of the group.
    // Split form: elements, and the same in bytes.
    std::vector<std::int64_t> per_member;
    std::vector<std::int64_t> part_bytes;
    std::int64_t begin = 0;  // scatters: bytes before what is scattered, in the root's source
    // Gathers and scatters of an exchange: bytes of each member, by matrix of the op.
    std::vector<std::vector<std::int64_t>> by_matrix;
  };

  absl::Status PrepareKernels();
  void PrepareExtents();
  absl::Status IssueOne(std::int32_t id, Stream& stream, const StepArguments& arguments);
  absl::Status IssueVerdict(const Op& op, Stream& stream, const StepArguments& arguments);
  absl::Status IssueSplit(const Op& op, const Extent& extent, Stream& stream,
                          Communicator& communicator);
  absl::Status IssueCollective(const Op& op, const Extent& extent, Stream& stream);
  absl::Status IssueExchange(const Op& op, const Extent& extent, Stream& stream,
                             Communicator& communicator);
  absl::Status IssueCompute(const Op& op, std::int32_t m, const Rows& rows, Stream& stream,
                            const StepArguments& arguments);
  absl::Status IssueRowNorm(const Op& op, std::int32_t m, const update::RowNorms& norms,
                            Stream& stream);
  absl::Status IssueCustom(const Op& op, Stream& stream, const StepArguments& arguments);

  float GradientScale(std::int32_t m) const;
  Rows RowsOf(const Op& op, std::int32_t m) const;
  std::int64_t BytesBefore(const Op& op, const std::vector<std::int64_t>& scattered,
                           std::int64_t width) const;
  std::int64_t RowsBefore(std::int32_t m, int rank) const;  // those of the shards before its own
  // The first row that this rank holds of a matrix of which it holds `rows`.
  std::int64_t FirstRow(std::int32_t m, std::int64_t rows) const;
  // Where the rows of `m` that `op` handles begin inside its source, which may hold more of them.
  const std::byte* OwnRows(const Op& op, std::int32_t m) const;
  // Elements of `slot` of a matrix on each member of the op's group, times `unit`.
  std::vector<std::int64_t> PerMember(const Op& op, std::int32_t m, Slot slot,
                                      std::int64_t unit) const;
  void PrepareExchange(const Op& op, std::int64_t width, Extent& extent) const;

  Device& device_;
  const Plan& plan_;
  const std::vector<MatrixSpec>& specs_;
  const int rank_;
  const Memory& memory_;
  const Communicators& communicators_;
  std::vector<std::unique_ptr<update::PartRuns>> newton_schulz_;
  std::vector<update::PartRuns*> by_matrix_;
  std::unique_ptr<Buffer> workspace_;
  std::unordered_map<std::int32_t, Extent> extents_;  // by op
};

}  // namespace weft::runtime
