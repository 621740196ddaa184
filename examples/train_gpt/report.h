// What a run, or a comparison of runs, comes to: the table, the claims that it must bear out, JSON.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train_gpt/trainer.h"

namespace train_gpt {

struct Run {
  std::string name;
  std::string optimizer, strategy, layout;
  std::vector<RankResult> ranks;
};

// Over the ranks of a run. Times are in seconds; a step's value is that of its slowest rank, and of
// the steps the median is taken, which the first ones, still warming up, do not move.
struct Summary {
  std::vector<double> losses;           // training, mean over ranks, by step
  std::vector<Evaluation> evaluations;  // held-out, mean over ranks
  std::optional<double> step_seconds;   // nothing when evaluations left no step to time
  double optimizer_seconds = 0;
  double exposed_seconds = 0;
  double ns_seconds = 0;
  // Payload of the collectives that the busiest rank takes part in per step.
  std::int64_t intra_bytes = 0;
  std::int64_t inter_bytes = 0;

  double final_loss() const { return evaluations.back().loss; }
};

// Requires at least one rank, with equal numbers of losses and evaluations, and one evaluation.
Summary Summarize(const std::vector<RankResult>& ranks);

// max over steps of |a - b| / |b|; infinite when the lengths differ or a loss is not finite.
double LargestRelativeDifference(const std::vector<double>& a, const std::vector<double>& b);

// Steps taken before the first evaluation whose loss is at most `loss`.
std::optional<int> StepsToReach(const std::vector<Evaluation>& evaluations, double loss);

struct Claim {
  bool holds = false;
  std::string sentence;  // with the figures, whether it holds or not
};

// The runs of --compare; `periodic` is of an owner of shards with NS in one of three steps.
struct Comparison {
  Run adamw, replicated, gather, owner, periodic;
};

// What the demo promises: the Muon strategies compute the same training run, Muon needs fewer steps
// than AdamW, and the owner's optimizer step is the fast one.
std::vector<Claim> Judge(const Comparison& comparison);

// One line per run under a header line. `goal` is the loss whose reaching is counted.
std::string Table(const std::vector<const Run*>& runs, std::optional<double> goal);

std::string ToJson(const std::vector<const Run*>& runs, const std::vector<Claim>& claims,
                   const std::string& trace);

}  // namespace train_gpt
