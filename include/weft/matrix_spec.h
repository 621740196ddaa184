// A parameter as the trainer registers it: its shape and layout, where it lies, and its rule.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/math.h"
#include "weft/plan_kinds.h"
#include "weft/stream.h"
#include "weft/update.h"

#pragma GCC visibility push(default)
namespace weft {

// What a caller's own rule works with, on each rank that runs it.
struct RuleContext {
  Device& device;
  Stream& stream;  // enqueue here; do not synchronize it
  std::string_view matrix;
  std::int64_t step;  // 0-based
  std::int64_t rows, cols;
  DType dtype;           // of gradient and weight
  const void* gradient;  // whole, rows x cols dense; sum over ranks: multiply by gradient_scale
  float gradient_scale;  // and by control->gradient_factor
  float* state;          // state_bytes_per_element * rows * cols bytes, zero before the first step
  void* weight;          // whole, to be updated in place
  double lr, weight_decay;  // of the job, or 0 where it gave none
  // Device memory, never null, to be read when the rule's work runs: where it says to skip, the
  // work must leave state and weight as they are.
  const StepControl* control;
};

struct CustomRule {
  // Enqueues its work and returns. An error, here or from the stream, fails the job on all ranks.
  std::function<absl::Status(const RuleContext&)> enqueue;
  std::int64_t state_bytes_per_element = 4;
  double flops = 0;  // of one run, for owner assignment
};

using Rule = std::variant<MuonOptions, AdamWOptions, CustomRule>;

// All ranks register the same matrices in the same order, which is the order in which the forward
// pass uses them; only `weight` and the rule's code differ by rank.
struct MatrixSpec {
  std::string name;  // unique, not empty, UTF-8
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::kF32;  // of weight and gradient
  // Device memory of the weight, dense rows: whole (replicated) or this rank's rows (sharded,
  // node_sharded). Weft writes it; it must outlive the runtime. Null allowed when empty, and for
  // PlanFor(). Owned: the first weight, whole; read in Commit() on the owner (which PlanFor()
  // tells), not looked at elsewhere, and not needed afterwards.
  void* weight = nullptr;
  Layout layout = Layout::kReplicated;
  GradientKind gradient = GradientKind::kLocal;
  int layer = 0;  // for ParameterNeeded()
  Rule rule = MuonOptions{};
  // Rows on each rank of the world (sharded) or of every node (node_sharded); empty means
  // DefaultShardRows() over as many ranks.
  std::vector<std::int64_t> shard_rows;
  // Of `rows`, how many at the end are padding (not with a custom rule). Weft does not read their
  // gradient, keeps their state at zero and does not update their weight; scale, norms and costs
  // are of the other rows.
  std::int64_t padding_rows = 0;
  // Muon only: rows, and columns, of each of the matrices that are stored as one (fused QKV, heads,
  // experts); they add up to rows - padding_rows, and to cols. Each has its own NS and scale, as if
  // registered alone; clipping, policies and counters are of the whole. Empty: not cut that way.
  std::vector<std::int64_t> row_blocks, column_blocks;  // EqualBlocks() makes lists of equal ones
  // row_blocks are of one of so many groups of rows; block i of all groups is one matrix (fused QKV
  // that is stored by query groups, as Megatron's).
  std::int64_t row_groups = 1;
};

}  // namespace weft
#pragma GCC visibility pop
