#include "tools/weft/verify.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "tools/reference/update.h"
#include "tools/weft/numbers.h"
#include "tools/weft/progress.h"
#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

// Half a unit in the last place, relative.
double RoundingOf(DType type) {
  switch (type) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kBF16:
      return 0x1p-9;
    case DType::kF16:
      return 0x1p-12;
  }
  return 0;
}

// Relative to the change; covers what the terms below leave out, sums above all. Measured up to
// 50257 x 768 and rounded up (docs/weft-tool.md).
double ToleranceOf(DType type) {
  switch (type) {
    case DType::kF32:
      return 1e-4;
    case DType::kBF16:
      return 0.03;
    case DType::kF16:
      return 4e-3;
  }
  return 0;
}

// Newton-Schulz multiplies small singular values, and with them the rounding of its operands, by
// the product of its linear coefficients. The direction's error is then about rounding * gain
// whatever the rank: little of a direction with many singular values, most of one with few.
// Measured factors stay below this one.
constexpr double kGainFactor = 1.25;

double GainOf(const NewtonSchulzOptions& ns) {
  double gain = 1;
  for (int i = 0; i < ns.iterations; ++i) {
    const std::size_t last = ns.coefficients.triples.size() - 1;
    gain *= std::max(1.0, std::abs(ns.coefficients.triples[std::min<std::size_t>(i, last)].a));
  }
  return gain;
}

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

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
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
    momentum_.assign(static_cast<std::size_t>(tensor_.elements), 0.0);
    if (matrix.route == Route::kAdamW) second_ = momentum_;
  }

  absl::Status Begin() {
    WEFT_RETURN_IF_ERROR(InitialWeights(session_, matrix_, 0, tensor_.elements, bytes_.data()));
    first_ = weight_ = Doubles(matrix_.dtype, bytes_);
    return absl::OkStatus();
  }

  absl::Status Step(int step, int threads) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> gradient, MeanGradient(step));
    const double before = Norm(weight_);
    if (matrix_.route == Route::kMuon) {
      reference::MuonStep(ReferenceOf(session_.settings.muon), matrix_.rows, matrix_.cols, gradient,
                          momentum_, weight_, threads);
    } else {
      reference::AdamWStep(ReferenceOf(session_.settings.adamw), step + 1, gradient, momentum_,
                           second_, weight_);
    }
    for (double& value : weight_) value = Rounded(matrix_.dtype, value);
    stored_ += 2 * RoundingOf(matrix_.dtype) * Norm(weight_) + 2 * RoundingOf(DType::kF32) * before;
    return absl::OkStatus();
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
    const double allowed = Allowed(change);
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
  double Allowed(double change) const {
    const int steps = session_.options.steps;
    if (matrix_.route == Route::kAdamW) return ToleranceOf(matrix_.dtype) * change + stored_;
    const MuonOptions& muon = session_.settings.muon;
    // The mean gradient is rounded to the matrix's type, the products' operands to theirs.
    const DType operands = muon.newton_schulz.operand_type;
    const DType coarsest =
        RoundingOf(matrix_.dtype) > RoundingOf(operands) ? matrix_.dtype : operands;
    const double direction = kGainFactor * RoundingOf(coarsest) * GainOf(muon.newton_schulz);
    const double step = muon.lr * ScaleFactor(muon.scale, matrix_.rows, matrix_.cols);
    return ToleranceOf(coarsest) * change + steps * step * direction + stored_;
  }

  absl::StatusOr<std::vector<double>> MeanGradient(int step) {
    const int size = session_.plan.topology.grid.size();
    std::vector<double> mean(weight_.size(), 0.0);
    for (int rank = 0; rank < size; ++rank) {
      WEFT_RETURN_IF_ERROR(
          session_.gradients.Fill(tensor_, matrix_.tensor, step, rank, bytes_.data()));
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
  // How far apart two weights may be that differ in their roundings alone: in each step both the
  // run and this replay round the stored weight, and the run also rounds 1 - lr * wd and its
  // product with the weight, in fp32.
  double stored_ = 0;
};

}  // namespace

double MatrixCheck::Used() const {
  if (error == 0) return 0;
  return std::isnan(error) || bound == 0 ? HUGE_VAL : error / bound;
}

bool Worse(const MatrixCheck& a, const MatrixCheck& b) {
  return a.ok != b.ok ? !a.ok : a.Used() > b.Used();
}

absl::StatusOr<VerifyReport> Verify(const Session& session, const RunReport& report) {
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  VerifyReport result;
  Progress progress("verify", static_cast<std::int64_t>(session.routing.matrices.size()));
  for (std::size_t i = 0; i < session.routing.matrices.size(); ++i) {
    MatrixReplay replay(session, session.routing.matrices[i]);
    WEFT_RETURN_IF_ERROR(replay.Begin());
    for (int step = 0; step < session.options.steps; ++step) {
      WEFT_RETURN_IF_ERROR(replay.Step(step, threads));
    }
    result.matrices.push_back(replay.Compare(report.weights[i]));
    const MatrixCheck& check = result.matrices.back();
    if (Worse(check, result.matrices[result.worst])) result.worst = i;
    result.ok = result.ok && check.ok;
    progress.Advance(static_cast<std::int64_t>(i) + 1);
  }
  return result;
}

}  // namespace weft::tool
