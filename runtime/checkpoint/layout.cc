#include "runtime/checkpoint/layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/memory.h"
#include "runtime/parts.h"
#include "scheduler/layout.h"

namespace weft::runtime {
namespace {

// Copies are not cut into smaller parts than this to spread them over the ranks that have them.
constexpr std::int64_t kSmallestPart = std::int64_t{1} << 20;

std::string DTypeInFile(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
  }
  return "";
}

}  // namespace

std::vector<Tensor> TensorsOf(const std::vector<MatrixSpec>& specs, CarriedWeights weights) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const MatrixSpec& spec = specs[i];
    const std::int64_t rows = LogicalRows(spec, 0, spec.rows);
    const auto add = [&](const char* name, TensorKind kind, std::string dtype,
                         std::vector<std::int64_t> shape, std::int64_t row_bytes) {
      tensors.push_back({absl::StrCat(spec.name, ".", name), static_cast<std::int32_t>(i), kind,
                         std::move(dtype), std::move(shape), row_bytes});
    };
    const auto add_floats = [&](const char* name, TensorKind kind) {
      add(name, kind, "F32", {rows, spec.cols}, spec.cols * std::int64_t{sizeof(float)});
    };
    if (std::holds_alternative<MuonOptions>(spec.rule)) {
      add_floats("momentum", TensorKind::kMomentum);
    } else if (std::holds_alternative<AdamWOptions>(spec.rule)) {
      add_floats("exp_avg", TensorKind::kFirstMoment);
      add_floats("exp_avg_sq", TensorKind::kSecondMoment);
    } else {
      const std::int64_t bytes = std::get<CustomRule>(spec.rule).state_bytes_per_element;
      if (bytes == sizeof(float)) {
        add_floats("state", TensorKind::kCustomState);
      } else if (bytes > 0) {
        // How it lies in there is the rule's own matter.
        add("state", TensorKind::kCustomState, "U8", {spec.rows * spec.cols * bytes}, 1);
      }
    }
    if (weights == CarriedWeights::kAll || spec.layout == Layout::kOwned) {
      add("weight", TensorKind::kWeight, DTypeInFile(spec.dtype), {rows, spec.cols},
          spec.cols * static_cast<std::int64_t>(SizeOf(spec.dtype)));
    }
  }
  return tensors;
}

StateLayout::StateLayout(const Plan& plan, const std::vector<MatrixSpec>& specs)
    : plan_(plan), specs_(specs) {
  for (int rank = 0; rank < plan.topology.grid.size(); ++rank) {
    std::vector<std::int64_t>& rows = state_rows_.emplace_back(specs.size());
    for (const auto& lane : plan.lanes[rank]) {
      for (const std::int32_t id : lane) {
        const Op& op = plan.ops[id];
        for (const std::int32_t m : MatricesOf(plan, op)) {
          rows[m] = std::max(rows[m], StateRows(plan, op, m, rank));
        }
      }
    }
  }
}

RowRange StateLayout::Stored(const Tensor& tensor, int rank) const {
  const PlanMatrix& matrix = plan_.matrices[tensor.matrix];
  const auto shard = [&](std::int64_t rows) -> RowRange {
    if (rows == 0 || rows == matrix.rows) return {0, rows};
    const auto begin = matrix.shard_rows.begin();
    const int before = scheduler::ShardOf(matrix, rank);
    return {std::accumulate(begin, begin + before, std::int64_t{0}), rows};
  };
  if (tensor.kind != TensorKind::kWeight) return shard(state_rows_[rank][tensor.matrix]);
  switch (matrix.layout) {
    case Layout::kReplicated:
      return {0, matrix.rows};
    case Layout::kSharded:
    case Layout::kNodeSharded:
      return shard(ShardRows(matrix, rank));
    case Layout::kOwned:
      return {0, matrix.owner == rank ? matrix.rows : 0};
  }
  return {};
}

RowRange StateLayout::Held(const Tensor& tensor, int rank) const {
  const RowRange stored = Stored(tensor, rank);
  if (tensor.dtype == "U8") return {0, stored.rows > 0 ? tensor.rows() : 0};
  const std::int64_t rows = LogicalRows(specs_[tensor.matrix], stored.first, stored.rows);
  return {rows > 0 ? stored.first : 0, rows};
}

RowRange StateLayout::Written(const Tensor& tensor, int rank) const {
  const RowRange held = Held(tensor, rank);
  const PlanMatrix& matrix = plan_.matrices[tensor.matrix];
  const bool shard = held.rows < tensor.rows();
  if (held.rows == 0 || (shard && !scheduler::HasReplicas(matrix))) return held;
  std::vector<int> holders;
  for (int other = 0; other < plan_.topology.grid.size(); ++other) {
    const RowRange others = Held(tensor, other);
    if (others.first == held.first && others.rows == held.rows) holders.push_back(other);
  }
  const auto count = static_cast<std::int64_t>(holders.size());
  const std::int64_t bytes = held.rows * tensor.row_bytes;
  const std::int64_t parts =
      std::clamp(bytes / kSmallestPart, std::int64_t{1}, std::min(count, held.rows));
  const auto place = std::find(holders.begin(), holders.end(), rank) - holders.begin();
  // Small ones, too, go round.
  const std::int64_t part = (place + count - tensor.matrix % count) % count;
  if (part >= parts) return {};
  const std::int64_t first = held.rows / parts * part + std::min(part, held.rows % parts);
  return {held.first + first, held.rows / parts + (part < held.rows % parts ? 1 : 0)};
}

}  // namespace weft::runtime
