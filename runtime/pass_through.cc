#include "runtime/pass_through.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <variant>

#include "scheduler/layout.h"

namespace weft::runtime {
namespace {

std::int64_t BytesOf(const MatrixSpec& spec) {
  return spec.rows * spec.cols * static_cast<std::int64_t>(SizeOf(spec.dtype));
}

// What ComparePassThrough() looks at, as a plan has it.
PlanMatrix Outline(const MatrixSpec& spec, const ProcessGrid& grid) {
  PlanMatrix matrix;
  matrix.rows = spec.rows;
  matrix.cols = spec.cols;
  matrix.dtype = spec.dtype;
  matrix.layout = spec.layout;
  matrix.gradient = spec.gradient;
  matrix.shard_rows = spec.shard_rows;
  scheduler::Simplify(grid, matrix);
  return matrix;
}

auto WorkKey(const OwnedWork& work) {
  return std::tuple(work.work.shape, work.work.flops, work.work.launches, work.batches, work.parts);
}
auto BucketKey(const PlanMatrix& matrix) {
  return std::tuple(matrix.layout, matrix.gradient, matrix.dtype);
}

// Asks once for matrices that are alike: models have many matrices and few kinds.
class Chooser {
 public:
  Chooser(const CostModel& model, const PlanLimits& limits, const FormChoices& forms,
          const std::vector<MatrixSpec>& specs, const std::vector<std::optional<OwnedWork>>& work)
      : model_(model),
        bucket_bytes_(limits.bucket_bytes),
        reductions_(limits.reduce_each_pass ? limits.passes : 1),
        forms_(forms) {
    for (std::size_t m = 0; m < specs.size(); ++m) {
      if (!std::holds_alternative<MuonOptions>(specs[m].rule)) continue;
      ++alike_[WorkKey(*work[m])];
      if (BytesOf(specs[m]) > bucket_bytes_) continue;
      small_[BucketKey(OutlineOf(specs[m]))] += BytesOf(specs[m]);
    }
  }

  // Only what is small enough for a bucket: repeated NS of larger ones would keep every device busy
  // with what one could do behind the trainer's own work.
  bool Pays(const MatrixSpec& spec, const OwnedWork& work) {
    if (BytesOf(spec) > bucket_bytes_) return false;
    const PlanMatrix matrix = OutlineOf(spec);
    const auto [place, is_new] = known_.emplace(
        std::tuple(WorkKey(work), BucketKey(matrix), spec.rows, spec.cols, matrix.shard_rows),
        false);
    if (is_new) {
      Company company;
      company.bucket_bytes =
          static_cast<double>(std::min(bucket_bytes_, small_[BucketKey(matrix)]));
      company.alike = alike_[WorkKey(work)];
      company.reductions = reductions_;
      company.forms = forms_;
      place->second = ComparePassThrough(model_, matrix, work, company).Pays();
    }
    return place->second;
  }

 private:
  PlanMatrix OutlineOf(const MatrixSpec& spec) const {
    return Outline(spec, model_.topology().grid);
  }

  const CostModel& model_;
  const std::int64_t bucket_bytes_;
  const int reductions_;
  const FormChoices forms_;
  std::map<decltype(WorkKey(OwnedWork())), int> alike_;
  std::map<decltype(BucketKey(PlanMatrix())), std::int64_t>
      small_;  // bytes that may travel together
  std::map<std::tuple<decltype(WorkKey(OwnedWork())), decltype(BucketKey(PlanMatrix())),
                      std::int64_t, std::int64_t, std::vector<std::int64_t>>,
           bool>
      known_;
};

}  // namespace

std::vector<bool> PassThroughOf(const std::vector<MatrixSpec>& specs, const RuntimeOptions& options,
                                const CostModel& model, const FormChoices& forms,
                                const std::vector<std::optional<OwnedWork>>& work) {
  std::vector<bool> passes(specs.size(), false);
  if (options.strategy != Strategy::kOwner || options.pass_through == PassThrough::kNever) {
    return passes;
  }
  const bool always = options.pass_through == PassThrough::kAlways;
  const OwnershipOptions& ownership = options.ownership;
  if (!always && (!ownership.owners.empty() || ownership.state_bytes_cap > 0)) return passes;
  Chooser chooser(model, options.limits, forms, specs, work);
  for (std::size_t m = 0; m < specs.size(); ++m) {
    const MatrixSpec& spec = specs[m];
    if (spec.layout == Layout::kOwned || std::holds_alternative<AdamWOptions>(spec.rule)) continue;
    // Of a caller's rule nothing says that it gives equal bits on all ranks.
    passes[m] =
        always || (std::holds_alternative<MuonOptions>(spec.rule) && chooser.Pays(spec, *work[m]));
  }
  return passes;
}

}  // namespace weft::runtime
