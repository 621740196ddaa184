#include "train_gpt/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace train_gpt {
namespace {

constexpr double kAgreement = 1e-5;
constexpr double kSpeedup = 2.5;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median over steps of the slowest rank's value.
template <typename Field>
double Slowest(const std::vector<RankResult>& ranks, Field field) {
  std::vector<double> steps;
  for (std::size_t i = 0; i < ranks[0].metrics.size(); ++i) {
    double slowest = 0;
    for (const RankResult& rank : ranks) {
      if (i < rank.metrics.size()) slowest = std::max(slowest, field(rank.metrics[i]));
    }
    steps.push_back(slowest);
  }
  return Median(std::move(steps));
}

// The ranks are threads of one process, so their metrics share a clock.
double MedianOptimizerSeconds(const std::vector<RankResult>& ranks) {
  std::vector<double> steps;
  for (std::size_t i = 0; i < ranks[0].metrics.size(); ++i) {
    std::vector<weft::StepMetrics> step;
    for (const RankResult& rank : ranks) step.push_back(rank.metrics.at(i));
    steps.push_back(weft::OptimizerSeconds(step));
  }
  return Median(std::move(steps));
}

std::int64_t BusiestBytes(const std::vector<RankResult>& ranks, weft::Lane lane) {
  return static_cast<std::int64_t>(Slowest(ranks, [lane](const weft::StepMetrics& metrics) {
    return static_cast<double>(metrics.lane_bytes[static_cast<std::size_t>(lane)]);
  }));
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.1f", seconds * 1e3); }
std::string Megabytes(std::int64_t bytes) {
  return absl::StrFormat("%.2f", static_cast<double>(bytes) / 1e6);
}

constexpr char kRow[] = "%-24s %10s %8s %10s %12s %9s %9s %9s %9s\n";

std::string Row(const Run& run, std::optional<double> goal) {
  const Summary summary = Summarize(run.ranks);
  std::string reached = "-";
  if (goal) {
    const std::optional<int> steps = StepsToReach(summary.evaluations, *goal);
    reached = steps ? std::to_string(*steps) : "never";
  }
  return absl::StrFormat(kRow, run.name, absl::StrFormat("%.4f", summary.final_loss()), reached,
                         summary.step_seconds ? Milliseconds(*summary.step_seconds) : "-",
                         Milliseconds(summary.optimizer_seconds),
                         Milliseconds(summary.exposed_seconds), Milliseconds(summary.ns_seconds),
                         Megabytes(summary.intra_bytes), Megabytes(summary.inter_bytes));
}

}  // namespace

Summary Summarize(const std::vector<RankResult>& ranks) {
  Summary summary;
  const double count = static_cast<double>(ranks.size());
  summary.losses.resize(ranks[0].losses.size());
  summary.evaluations = ranks[0].evaluations;
  for (Evaluation& evaluation : summary.evaluations) evaluation.loss = 0;
  std::vector<double> step_seconds(ranks[0].step_seconds.size());
  for (const RankResult& rank : ranks) {
    for (std::size_t i = 0; i < summary.losses.size(); ++i) {
      summary.losses[i] += rank.losses[i] / count;
    }
    for (std::size_t i = 0; i < summary.evaluations.size(); ++i) {
      summary.evaluations[i].loss += rank.evaluations[i].loss / count;
    }
    for (std::size_t i = 0; i < step_seconds.size(); ++i) {
      step_seconds[i] = std::max(step_seconds[i], rank.step_seconds[i]);
    }
  }
  if (!step_seconds.empty()) summary.step_seconds = Median(step_seconds);
  summary.optimizer_seconds = MedianOptimizerSeconds(ranks);
  summary.exposed_seconds = Slowest(ranks, [](const weft::StepMetrics& metrics) {
    return metrics.exposed_communication_seconds;
  });
  summary.ns_seconds =
      Slowest(ranks, [](const weft::StepMetrics& metrics) { return metrics.ns_seconds; });
  summary.intra_bytes = BusiestBytes(ranks, weft::Lane::kIntra);
  summary.inter_bytes = BusiestBytes(ranks, weft::Lane::kInter);
  return summary;
}

double LargestRelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinite;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return kInfinite;
    if (a[i] != b[i]) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

std::optional<int> StepsToReach(const std::vector<Evaluation>& evaluations, double loss) {
  for (const Evaluation& evaluation : evaluations) {
    if (evaluation.loss <= loss) return evaluation.step;
  }
  return std::nullopt;
}

std::vector<Claim> Judge(const Comparison& comparison) {
  const Summary adamw = Summarize(comparison.adamw.ranks);
  const Summary replicated = Summarize(comparison.replicated.ranks);
  const Summary gather = Summarize(comparison.gather.ranks);
  const Summary owner = Summarize(comparison.owner.ranks);
  std::vector<Claim> claims;

  const double difference = std::max({LargestRelativeDifference(gather.losses, replicated.losses),
                                      LargestRelativeDifference(owner.losses, replicated.losses),
                                      LargestRelativeDifference(owner.losses, gather.losses)});
  claims.push_back(
      {difference <= kAgreement,
       absl::StrFormat("The training losses of replicated, gather and owner differ by at most %.1e "
                       "relative in any of %d steps (allowed: %.0e).",
                       difference, owner.losses.size(), kAgreement)});

  const double goal = adamw.final_loss();
  const int adamw_steps = adamw.evaluations.back().step;
  for (const auto& [name, summary] :
       {std::pair<const char*, const Summary*>{"replicated", &replicated},
        {"gather", &gather},
        {"owner", &owner}}) {
    const std::optional<int> steps = StepsToReach(summary->evaluations, goal);
    claims.push_back(
        {steps && *steps < adamw_steps,
         absl::StrFormat("Muon (%s) reaches AdamW's held-out loss of %.4f after %s steps; AdamW "
                         "took %d.",
                         name, goal, steps ? std::to_string(*steps) : "more than all",
                         adamw_steps)});
  }

  const double speedup =
      owner.optimizer_seconds > 0 ? gather.optimizer_seconds / owner.optimizer_seconds : 0;
  claims.push_back(
      {speedup >= kSpeedup,
       absl::StrFormat("The optimizer step takes %.1f ms under owner and %.1f ms under gather: "
                       "%.2f times faster (asked: %.1f).",
                       owner.optimizer_seconds * 1e3, gather.optimizer_seconds * 1e3, speedup,
                       kSpeedup)});
  return claims;
}

std::string Table(const std::vector<const Run*>& runs, std::optional<double> goal) {
  std::string table = absl::StrFormat(kRow, "", "held-out", "steps", "step", "optimizer", "exposed",
                                      "NS", "intra", "inter");
  table += absl::StrFormat(kRow, "run", "loss", "to goal", "ms", "ms", "ms", "ms", "MB", "MB");
  for (const Run* run : runs) table += Row(*run, goal);
  return table;
}

std::string ToJson(const std::vector<const Run*>& runs, const std::vector<Claim>& claims,
                   const std::string& trace) {
  nlohmann::ordered_json document;
  document["runs"] = nlohmann::ordered_json::array();
  for (const Run* run : runs) {
    const Summary summary = Summarize(run->ranks);
    nlohmann::ordered_json json;
    json["name"] = run->name;
    json["optimizer"] = run->optimizer;
    json["strategy"] = run->strategy;
    json["layout"] = run->layout;
    json["ranks"] = run->ranks.size();
    json["held_out_loss"] = summary.final_loss();
    json["step_seconds"] = summary.step_seconds ? nlohmann::ordered_json(*summary.step_seconds)
                                                : nlohmann::ordered_json(nullptr);
    json["optimizer_seconds"] = summary.optimizer_seconds;
    json["exposed_communication_seconds"] = summary.exposed_seconds;
    json["ns_seconds"] = summary.ns_seconds;
    json["intra_bytes"] = summary.intra_bytes;
    json["inter_bytes"] = summary.inter_bytes;
    json["losses"] = summary.losses;
    json["held_out"] = nlohmann::ordered_json::array();
    for (const Evaluation& evaluation : summary.evaluations) {
      json["held_out"].push_back({{"step", evaluation.step}, {"loss", evaluation.loss}});
    }
    document["runs"].push_back(std::move(json));
  }
  document["claims"] = nlohmann::ordered_json::array();
  for (const Claim& claim : claims) {
    document["claims"].push_back({{"holds", claim.holds}, {"sentence", claim.sentence}});
  }
  if (!trace.empty()) document["trace"] = trace;
  return document.dump(2) + "\n";
}

}  // namespace train_gpt
