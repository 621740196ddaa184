// One rank of a data-parallel trainer that leaves its optimizer to Weft.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train_gpt/data.h"
#include "train_gpt/model.h"
#include "weft/weft.h"

namespace train_gpt {

// kMuon: Muon for the hidden matrices, AdamW for the rest. kAdamW: AdamW for everything.
enum class Optimizer { kAdamW, kMuon };

struct TrainerOptions {
  GptConfig model;  // vocabulary is the corpus's
  int batch_per_rank = 4;
  int steps = 100;
  int warmup_steps = 10;  // the rate rises linearly, then falls linearly to a tenth
  int evaluate_every = 10;
  int evaluation_sequences = 16;  // held-out sequences per rank
  std::uint64_t seed = 1;

  Optimizer optimizer = Optimizer::kMuon;
  weft::MuonOptions muon;
  // AdamW's best rate for the default model (docs/demo.md has the sweep).
  weft::AdamWOptions adamw{.lr = 5e-4};

  weft::Topology topology;
  weft::Strategy strategy = weft::Strategy::kOwner;
  weft::Layout layout = weft::Layout::kReplicated;
  std::string trace;  // file that rank 0 writes; empty: no trace
};

struct Evaluation {
  int step = 0;  // steps taken before it
  double loss = 0;
};

// What one rank saw.
struct RankResult {
  std::vector<double> losses;           // of its own batch, by step
  std::vector<Evaluation> evaluations;  // on its share of the held-out windows
  // From the start of a step's forward pass to the start of the next one, both inclusive of the
  // waits for weights. Steps next to an evaluation are left out: it would take over their waits.
  std::vector<double> step_seconds;
  std::vector<weft::StepMetrics> metrics;  // by step
  std::vector<weft::MatrixCounters> counters;
};

// Trains; collective over the transport's ranks, which pass equal options. On an error the
// transport is aborted, so that no peer waits for this rank.
absl::StatusOr<RankResult> TrainRank(const TrainerOptions& options, const Corpus& corpus,
                                     weft::Device& device, weft::Transport& transport);

// Every rank of options.topology as a thread of this process, over the local transport with the
// topology's links emulated. Results in rank order, or the first error.
absl::StatusOr<std::vector<RankResult>> TrainLocally(const TrainerOptions& options,
                                                     const Corpus& corpus);

}  // namespace train_gpt
