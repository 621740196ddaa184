#include "weft/work.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "runtime/parts.h"
#include "update/recipe.h"
#include "update/segment_advisor.h"

namespace weft {
namespace {

absl::StatusOr<ComputeWork> WorkOf(const NewtonSchulzOptions& options, std::int64_t rows,
                                   std::int64_t cols, update::SegmentAdvisor& advisor) {
  WEFT_ASSIGN_OR_RETURN(const update::Recipe recipe,
                        update::MakeRecipe(options, rows, cols, advisor));
  ComputeWork work;
  work.shape = {ComputeKind::kNewtonSchulz, rows, cols, options.operand_type,
                recipe.segments == std::vector<int>{0}
                    ? absl::StrCat("plain ", options.iterations)
                    : absl::StrCat("gram ", absl::StrJoin(recipe.segments, ","))};
  work.flops = recipe.Cost().symmetric_flops;
  // The input is normalized, the result converted.
  work.launches = static_cast<int>(recipe.steps.size()) + 2;
  return work;
}

// Equal parts are a batch of their own shape. Batches of different shapes run one after another: no
// measured shape is theirs, their FLOPs tell.
absl::StatusOr<OwnedWork> WorkOf(const MuonOptions& muon, const MatrixSpec& spec,
                                 update::SegmentAdvisor& advisor) {
  OwnedWork owned;
  owned.batches = runtime::IsOnePart(spec);
  const auto batches = update::BatchesOf(runtime::PartsOf(spec), spec.cols);
  for (const update::EqualParts& equal : batches) {
    WEFT_ASSIGN_OR_RETURN(const ComputeWork work, WorkOf(muon.newton_schulz, equal.first.height(),
                                                         equal.first.cols, advisor));
    if (batches.size() == 1) {
      owned.work = work;
      owned.parts = static_cast<int>(equal.count);
      return owned;
    }
    owned.work.shape = work.shape;
    owned.work.flops += static_cast<double>(equal.count) * work.flops;
    owned.work.launches += work.launches;
  }
  owned.work.shape.rows = spec.rows;
  owned.work.shape.cols = spec.cols;
  owned.work.shape.recipe = "parts";
  return owned;
}

}  // namespace

absl::StatusOr<ComputeWork> NewtonSchulzWork(const NewtonSchulzOptions& options, std::int64_t rows,
                                             std::int64_t cols) {
  update::SegmentAdvisor advisor;
  return WorkOf(options, rows, cols, advisor);
}

ComputeWork RowNormWork(std::int64_t rows, std::int64_t cols) {
  const double elements = static_cast<double>(rows) * static_cast<double>(cols);
  ComputeWork work;
  work.shape = {ComputeKind::kRowNorm, rows, cols, DType::kF32, ""};
  work.flops = 3 * elements;      // square, add, scale
  work.bytes = 3 * 4 * elements;  // read for the norms, read and written for the result
  work.launches = 1;
  return work;
}

absl::StatusOr<std::vector<std::optional<OwnedWork>>> OwnedWorkOf(
    const std::vector<MatrixSpec>& matrices) {
  std::vector<std::optional<OwnedWork>> result;
  update::SegmentAdvisor advisor;
  for (const MatrixSpec& spec : matrices) {
    if (const auto* muon = std::get_if<MuonOptions>(&spec.rule)) {
      absl::StatusOr<OwnedWork> work = WorkOf(*muon, spec, advisor);
      if (!work.ok()) {
        return absl::Status(work.status().code(),
                            absl::StrCat("matrix '", spec.name, "': ", work.status().message()));
      }
      result.push_back(*std::move(work));
    } else if (const auto* custom = std::get_if<CustomRule>(&spec.rule)) {
      ComputeWork work;
      work.shape = {ComputeKind::kNewtonSchulz, spec.rows, spec.cols, DType::kF32, "custom"};
      work.flops = custom->flops;
      result.push_back(OwnedWork{std::move(work), /*batches=*/false});
    } else if (spec.layout == Layout::kOwned) {
      // AdamW: a pass over gradient, two moments and weight.
      ComputeWork work = RowNormWork(spec.rows, spec.cols);
      work.flops *= 4;
      work.bytes = 7 * 4 * static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
      result.push_back(OwnedWork{std::move(work), /*batches=*/false});
    } else {
      result.push_back(std::nullopt);
    }
  }
  return result;
}

}  // namespace weft
