#include "tools/weft/verify.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "tools/reference/update.h"
#include "tools/weft/numbers.h"
#include "tools/weft/progress.h"

namespace weft::tool {
namespace {

// Measured with random and with ill-conditioned matrices up to 50257 x 768 and rounded up;
// docs/weft-tool.md says how.
constexpr double kToleranceF32 = 5e-3;
constexpr double kToleranceBf16 = 0.15;
// Rounding of a stored weight, per step: half a unit in the last place, relative.
constexpr double kRoundingF32 = 0x1p-24;
constexpr double kRoundingBf16 = 0x1p-9;

reference::MuonSettings ReferenceOf(const MuonOptions& muon) {
  reference::MuonSettings settings;
  settings.lr = muon.lr;
  settings.momentum = muon.momentum;
  settings.nesterov = muon.nesterov;
  settings.weight_decay = muon.weight_decay;
  settings.match_rms_adamw = muon.scale == Scale::kMatchRmsAdamW;
  const NewtonSchulzOptions& ns = muon.newton_schulz;
  for (int i = 0; i < ns.iterations; ++i) {
    const std::size_t last = ns.coefficients.triples.size() - 1;
    const Triple& triple = ns.coefficients.triples[std::min<std::size_t>(i, last)];
    settings.iterations.push_back({triple.a, triple.b, triple.c});
  }
  settings.norm_floor = ns.norm_floor;
  settings.clamp = ns.clamp_to_floor;
  return settings;
}

reference::AdamWSettings ReferenceOf(const AdamWOptions& adamw) {
  return {adamw.lr, adamw.beta1, adamw.beta2, adamw.eps, adamw.weight_decay};
}

std::vector<double> Doubles(DType type, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / SizeOf(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = ValueAt(type, bytes.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

// One matrix through all steps. Weights are rounded to their type after each step, as stored ones
// are; nothing else is.
class MatrixReplay {
 public:
  MatrixReplay(const Session& session, const RoutedMatrix& matrix)
      : session_(session),
        matrix_(matrix),
        tensor_(session.model.tensors[matrix.tensor]),
        bytes_(static_cast<std::size_t>(tensor_.elements) * SizeOf(matrix.dtype)) {
    InitialWeights(session, matrix, 0, tensor_.elements, bytes_.data());
    first_ = weight_ = Doubles(matrix.dtype, bytes_);
    momentum_.assign(weight_.size(), 0.0);
    if (matrix.route == Route::kAdamW) second_.assign(weight_.size(), 0.0);
  }

  void Step(int step, int threads) {
    const std::vector<double> gradient = MeanGradient(step);
    if (matrix_.route == Route::kMuon) {
      reference::MuonStep(ReferenceOf(session_.settings.muon), matrix_.rows, matrix_.cols, gradient,
                          momentum_, weight_, threads);
    } else {
      reference::AdamWStep(ReferenceOf(session_.settings.adamw), step + 1, gradient, momentum_,
                           second_, weight_);
    }
    for (double& value : weight_) value = Rounded(matrix_.dtype, value);
  }

  MatrixCheck Compare(const std::vector<std::byte>& result) const {
    const std::vector<double> weights = Doubles(matrix_.dtype, result);
    double difference = 0, change = 0, size = 0;
    for (std::size_t i = 0; i < weight_.size(); ++i) {
      difference += (weights[i] - weight_[i]) * (weights[i] - weight_[i]);
      change += (weight_[i] - first_[i]) * (weight_[i] - first_[i]);
      size += weight_[i] * weight_[i];
    }
    difference = std::sqrt(difference);
    change = std::sqrt(change);
    size = std::sqrt(size);
    const bool bf16 = matrix_.dtype == DType::kBF16;
    const bool coarse = bf16 || (matrix_.route == Route::kMuon &&
                                 session_.settings.muon.newton_schulz.operand_type == DType::kBF16);
    const double rounding = session_.options.steps * (bf16 ? kRoundingBf16 : kRoundingF32) * size;
    const double allowed = (coarse ? kToleranceBf16 : kToleranceF32) * change + rounding;
    MatrixCheck check;
    check.name = tensor_.name;
    // Where nothing changed, errors are measured in units of the weights.
    const double unit = change > 0 ? change : size > 0 ? size : 1;
    check.error = difference / unit;
    check.bound = allowed / unit;
    check.weight_error = size > 0 ? difference / size : difference;
    check.ok = difference <= allowed;  // false for NaN
    return check;
  }

 private:
  std::vector<double> MeanGradient(int step) {
    const int size = session_.plan.topology.grid.size();
    std::vector<double> mean(weight_.size(), 0.0);
    for (int rank = 0; rank < size; ++rank) {
      session_.gradients.Fill(tensor_, matrix_.tensor, step, rank, bytes_.data());
      const std::vector<double> gradient = Doubles(matrix_.dtype, bytes_);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i];
    }
    for (double& value : mean) value /= size;
    return mean;
  }

  const Session& session_;
  const RoutedMatrix& matrix_;
  const ModelTensor& tensor_;
  std::vector<std::byte> bytes_;  // room for one gradient in the working type
  std::vector<double> first_, weight_, momentum_, second_;
};

}  // namespace

VerifyReport Verify(const Session& session, const RunReport& report) {
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  VerifyReport result;
  Progress progress("verify", static_cast<std::int64_t>(session.routing.matrices.size()));
  for (std::size_t i = 0; i < session.routing.matrices.size(); ++i) {
    MatrixReplay replay(session, session.routing.matrices[i]);
    for (int step = 0; step < session.options.steps; ++step) replay.Step(step, threads);
    result.matrices.push_back(replay.Compare(report.weights[i]));
    const MatrixCheck& check = result.matrices.back();
    const MatrixCheck& worst = result.matrices[result.worst];
    // A check that failed, then the one nearest to its bound; NaN errors fail.
    const bool worse =
        check.ok != worst.ok ? !check.ok : check.error * worst.bound > worst.error * check.bound;
    if (worse) result.worst = i;
    result.ok = result.ok && check.ok;
    progress.Advance(static_cast<std::int64_t>(i) + 1);
  }
  return result;
}

}  // namespace weft::tool
