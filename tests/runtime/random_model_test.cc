// Any model on any grid, with any options, in any number of micro-steps and any order of
// submission, trains as the serial float64 reference does, and counts what its plan says.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/trial.h"
#include "tests/scheduler/requests.h"
#include "tests/support/costs.h"
#include "tests/support/model.h"
#include "tests/support/property.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using testing::DrawTrial;
using testing::Expected;
using testing::RankModel;
using testing::SpecsOf;
using testing::Trial;
using testing::Weights;

// Under sanitizers and fakes a case takes an order of magnitude longer.
constexpr bool kSlow = testing::kSanitized || testing::kUnderFakes;
constexpr int kCases = kSlow ? 30 : 200;
constexpr int kFormCases = kCases / 5;
constexpr int kDraws = 50;  // a draw in about N has what a case asks for

// Adds a matrix's share of `times` runs of a collective in which it travels.
void AddCollective(const Plan& plan, const Op& op, std::int32_t m, int rank, int times,
                   MatrixCounters& counters) {
  const absl::Span<const std::int32_t> travel = MatricesOf(plan, op);
  if (!IsCollective(op.kind) || std::find(travel.begin(), travel.end(), m) == travel.end()) return;
  const PlanMatrix& matrix = plan.matrices[m];
  // One in pieces counts with its last; of a bucket a matrix counts its own part.
  const int last = op.piece + 1 == op.pieces ? times : 0;
  counters.collectives += last;
  if (travel.size() == 1) {
    counters.bytes += PayloadBytes(plan, op, rank) * times;
  } else {
    const std::int64_t rows = op.source == Slot::kNormSquares ? matrix.norm_vectors : matrix.rows;
    counters.bytes += rows * matrix.cols * static_cast<std::int64_t>(sizeof(float)) * last;
  }
}

// What `rank` must have counted for a matrix in all steps, by the documented paths and the plan's
// collectives.
MatrixCounters ExpectedCounters(const Trial& trial, const Plan& plan, std::int32_t m, int rank) {
  const PlanMatrix& matrix = plan.matrices[m];
  const bool runs_rule = testing::RunsRule(plan, matrix, rank);
  // The direction of a matrix in shards travels, and each rank applies its rows.
  const bool applies = matrix.rule == RuleKind::kMuon && testing::InShards(matrix.layout);
  MatrixCounters counters;
  const bool takes_norms = matrix.rule == RuleKind::kMuon && runs_rule;
  const bool runs_ns =
      takes_norms && (!testing::StateOnShards(plan, matrix) || matrix.owner == rank);
  for (int step = 0; step < trial.steps; ++step) {
    const bool refresh = (step + matrix.period - matrix.phase) % matrix.period == 0;
    counters.ns_runs += refresh && runs_ns;
    counters.row_norms += !refresh && takes_norms;
  }
  counters.updates = runs_rule || applies ? trial.steps : 0;
  for (const auto& lane : plan.lanes[rank]) {
    for (std::int32_t index : lane) {
      int times = 0;
      for (int step = 0; step < trial.steps; ++step) times += RunsIn(plan, plan.ops[index], step);
      AddCollective(plan, plan.ops[index], m, rank, times, counters);
    }
  }
  counters.last_gradient_step = trial.steps - 1;
  return counters;
}

// The same when the next step has fetched what it fetches without being asked.
MatrixCounters WithFetchesAhead(const Plan& plan, std::int32_t m, int rank,
                                MatrixCounters counters) {
  for (const auto& lane : plan.lanes[rank]) {
    for (std::int32_t index : lane) {
      const Op& op = plan.ops[index];
      if (op.trigger != Trigger::kNeeded || op.use >= 0) continue;
      AddCollective(plan, op, m, rank, 1, counters);
    }
  }
  return counters;
}

// Empty, or where the counters differ.
std::string Compare(const MatrixCounters& counted, const MatrixCounters& expected,
                    const MatrixCounters& most) {
  std::ostringstream text;
  const auto compare = [&](const char* name, std::int64_t MatrixCounters::*counter) {
    const std::int64_t is = counted.*counter, meant = expected.*counter;
    if (is >= meant && is <= most.*counter) return;
    text << " " << name << " " << is << " instead of " << meant << ";";
  };
  compare("ns_runs", &MatrixCounters::ns_runs);
  compare("row_norms", &MatrixCounters::row_norms);
  compare("updates", &MatrixCounters::updates);
  compare("collectives", &MatrixCounters::collectives);
  compare("bytes", &MatrixCounters::bytes);
  compare("last_gradient_step", &MatrixCounters::last_gradient_step);
  return text.str();
}

// What a rank's training came to.
struct Outcome {
  std::string wrong;                        // empty: nothing
  std::vector<std::vector<float>> weights;  // by matrix, as held in the end; owned ones whole
};

// Trains on one rank, submitting in an order of its own and leaving layers out as it likes.
class Trainer {
 public:
  Trainer(const Trial& trial, const std::vector<Weights>& expected, testing::Rank rank)
      : trial_(trial),
        expected_(expected),
        rank_(rank.rank),
        model_(trial.matrices, rank_, trial.world(), trial.seed),
        runtime_(*Runtime::Create(trial.options, rank.device, rank.transport)),
        random_(trial.seed * 31 + static_cast<std::uint64_t>(rank_)),
        last_(model_.size()) {}

  Outcome Run() {
    Outcome outcome;
    const absl::Status status = Train(outcome);
    outcome.wrong = wrong_.str();
    if (!status.ok()) outcome.wrong += status.ToString() + "\n";
    return outcome;
  }

 private:
  absl::Status Train(Outcome& outcome) {
    for (const MatrixSpec& spec : SpecsOf(trial_, model_)) {
      const auto added = runtime_->AddMatrix(spec);
      if (!added.ok()) return added.status();
    }
    if (const absl::Status status = runtime_->Commit(); !status.ok()) return status;
    for (int step = 0; step < trial_.steps; ++step) {
      if (const absl::Status status = Step(step); !status.ok()) return status;
    }
    if (const absl::Status status = runtime_->WaitForStep(); !status.ok()) return status;
    CheckCounters();
    const std::vector<Use>& uses = plan().uses;
    for (std::size_t use = 0; use < uses.size() && !uses[use].backward; ++use) {
      const absl::Status status = Visit(static_cast<int>(use), trial_.steps);
      if (!status.ok()) return status;
    }
    for (std::size_t m = 0; m < model_.size(); ++m) {
      if (!Owned(m)) last_[m] = model_.weight(m);
      CheckWeight(m, last_[m], trial_.steps);
    }
    outcome.weights = std::move(last_);
    return absl::OkStatus();
  }

  absl::Status Step(int step) {
    done_.assign(model_.size(), 0);
    if (Often()) {  // else the step follows the one before at once
      for (const int layer : trial_.layers) {
        if (Uses(layer)) continue;
        if (const absl::Status status = runtime_->WaitForLayer(layer); !status.ok()) return status;
        CheckLayer(layer, step);
      }
    }
    const int uses = static_cast<int>(plan().uses.size());
    for (int use = 0; use < uses; ++use) {
      if (const absl::Status status = SubmitBefore(use, step); !status.ok()) return status;
      if (random_() % 4 == 0) continue;
      if (const absl::Status status = Visit(use, step); !status.ok()) return status;
    }
    const absl::Status status = Submit([&](std::size_t) { return trial_.micro_steps(); }, step);
    if (!status.ok()) return status;
    held_.clear();  // by Step()
    next_use_ = 0;
    return runtime_->Step();
  }

  // Jobs that must be in before the trainer can come to a use, and a few others.
  absl::Status SubmitBefore(int use, int step) {
    const std::vector<Use>& uses = plan().uses;
    const int micro_steps = trial_.micro_steps();
    const int in_pass = static_cast<int>(uses.size()) / micro_steps;
    const int pass = use / in_pass;
    const int backward = pass * in_pass + in_pass / 2;
    const auto first_of_layer = static_cast<std::size_t>(
        std::find(trial_.layers.begin(), trial_.layers.end(), uses[use].layer) -
        trial_.layers.begin());
    const auto passed = [&](int layer) {
      return std::any_of(uses.begin() + backward, uses.begin() + use,
                         [&](const Use& before) { return before.layer == layer; });
    };
    return Submit(
        [&](std::size_t m) {
          const bool due =
              use >= backward && (Owned(m) ? passed(trial_.layers[m]) : m > first_of_layer);
          const bool early = random_() % 16 == 0;
          if (ReducesEach(m)) return pass + (due || early ? 1 : 0);
          if (due && pass + 1 == micro_steps) return micro_steps;
          return early ? static_cast<int>(random_() % (micro_steps + 1)) : 0;
        },
        step);
  }

  // Of each matrix the jobs of the first count(matrix) micro-steps, those of one in any order.
  template <typename Count>
  absl::Status Submit(const Count& count, int step) {
    std::vector<std::size_t> order(model_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<int> counts(model_.size());
    for (const std::size_t m : order) counts[m] = count(m);
    for (int micro = 0; micro < trial_.micro_steps(); ++micro) {
      for (const std::size_t m : order) {
        if (done_[m] != micro || counts[m] <= micro) continue;
        if (const absl::Status status = SubmitOne(m, step); !status.ok()) return status;
        if (random_() % 4 != 0) continue;
        if (const absl::Status status = runtime_->Progress(); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status SubmitOne(std::size_t m, int step) {
    const int micro = done_[m]++;
    const std::vector<float> gradient = model_.Gradient(m, trial_.Sample(step, micro));
    const MatrixJob job{.matrix = Id(m),
                        .gradient = gradient.data(),
                        .more = micro + 1 < trial_.micro_steps(),
                        .lr = Trial::Rate(step)};
    if (!ReducesEach(m) || micro == 0) return runtime_->Submit(job).status();
    // The passes before are over.
    const int uses = static_cast<int>(plan().uses.size());
    next_use_ = std::max(next_use_, uses / trial_.micro_steps() * micro);
    return Releasing([&] { return runtime_->Submit(job).status(); });
  }

  // What is held may be in the way of what `call` asks for.
  template <typename Call>
  absl::Status Releasing(const Call& call) {
    absl::Status status = call();
    while (absl::IsFailedPrecondition(status) && !held_.empty()) {
      if (const absl::Status released = ReleaseFirst(); !released.ok()) return released;
      status = call();
    }
    return status;
  }

  // Waits for the weights of a layer, compares them, and releases layers, this one or earlier ones.
  absl::Status Visit(int meant, int step) {
    const std::vector<Use>& uses = plan().uses;
    const int layer = uses[meant].layer;
    // After layers that were left out, a need may come to an earlier use than is meant.
    int use = next_use_;
    while (uses[use].layer != layer) ++use;
    next_use_ = use + 1;
    const int held = plan().limits.keep_through_backward ? static_cast<int>(uses.size())
                                                         : plan().limits.inter_layers_ahead + 1;
    // Those whose place this one takes.
    while (!held_.empty() && held_.front() <= use - held) {
      if (const absl::Status status = ReleaseFirst(); !status.ok()) return status;
    }
    const auto same = std::find_if(held_.begin(), held_.end(),
                                   [&](int other) { return uses[other].layer == layer; });
    if (same != held_.end()) {
      const int other = *same;
      while (held_.front() != other) {
        if (const absl::Status status = ReleaseFirst(); !status.ok()) return status;
      }
      held_.pop_front();  // by the need
    }
    const absl::Status needed = Releasing([&] { return runtime_->WaitForLayer(layer); });
    if (!needed.ok()) return needed;
    CheckLayer(layer, step);
    held_.push_back(use);
    for (std::size_t releases = random_() % (held_.size() + 1); releases > 0; --releases) {
      if (const absl::Status status = ReleaseFirst(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReleaseFirst() {
    const int use = held_.front();
    held_.pop_front();
    return runtime_->ParameterReleased(plan().uses[use].layer);
  }

  // The layer's weights are here. Those of the end are kept.
  void CheckLayer(int layer, int step) {
    for (std::size_t m = 0; m < model_.size(); ++m) {
      if (trial_.layers[m] != layer) continue;
      if (!Owned(m)) {
        CheckWeight(m, model_.weight(m), step);
        continue;
      }
      const auto* weight = static_cast<const float*>(*runtime_->Parameter(Id(m)));
      std::vector<float> copy(weight, weight + model_.Size(m));
      CheckWeight(m, copy, step);
      if (step == trial_.steps) last_[m] = std::move(copy);
    }
  }

  void CheckWeight(std::size_t m, const std::vector<float>& weight, int step) {
    const std::vector<double>& expected = expected_[step][m];
    const std::vector<float> own =
        model_.OwnRows(m, std::vector<float>(expected.begin(), expected.end()));
    double error = 0;
    for (std::size_t i = 0; i < own.size(); ++i) error += std::pow(weight[i] - own[i], 2);
    // The first weights are standard normal, so this is about their norm.
    const double norm = std::sqrt(static_cast<double>(own.size()));
    if (std::sqrt(error) <= 1e-5 * norm) return;
    wrong_ << Where(m) << " weights of norm " << norm << " differ by " << std::sqrt(error)
           << " before step " << step << "\n";
  }

  // The last step is complete.
  void CheckCounters() {
    const std::vector<MatrixCounters> counters = runtime_->Counters();
    for (std::size_t m = 0; m < model_.size(); ++m) {
      const MatrixCounters least = ExpectedCounters(trial_, plan(), Id(m), rank_);
      const std::string differs =
          Compare(counters[m], least, WithFetchesAhead(plan(), Id(m), rank_, least));
      if (!differs.empty()) wrong_ << Where(m) << differs << "\n";
    }
  }

  bool Often() { return random_() % 2 == 0; }
  bool ReducesEach(std::size_t m) const {
    return plan().limits.reduce_each_pass && trial_.world() > 1 &&
           trial_.matrices[m].gradient != GradientKind::kReduced;
  }
  bool Owned(std::size_t m) const { return trial_.matrices[m].layout == Layout::kOwned; }
  bool Uses(int layer) const {
    return std::any_of(plan().uses.begin(), plan().uses.end(),
                       [&](const Use& use) { return use.layer == layer; });
  }
  const Plan& plan() const { return runtime_->plan(); }
  std::string Where(std::size_t m) const {
    return "rank " + std::to_string(rank_) + ", matrix '" + RankModel::NameOf(m) + "':";
  }
  static MatrixId Id(std::size_t m) { return static_cast<MatrixId>(m); }

  const Trial& trial_;
  const std::vector<Weights>& expected_;
  const int rank_;
  RankModel model_;
  const std::unique_ptr<Runtime> runtime_;
  std::mt19937_64 random_;
  std::vector<int> done_;  // by matrix: micro-steps of the open step
  std::deque<int> held_;   // uses, in their order
  int next_use_ = 0;
  std::vector<std::vector<float>> last_;  // Outcome::weights
  std::ostringstream wrong_;
};

// By rank.
std::vector<Outcome> TrainWorld(const Trial& trial, const std::vector<Weights>& expected) {
  std::vector<Outcome> outcomes(trial.world());
  testing::RunWorld({.grid = trial.options.topology.grid}, [&](testing::Rank rank) {
    outcomes[rank.rank] = Trainer(trial, expected, rank).Run();
  });
  return outcomes;
}

TEST(RandomModels, TrainAsTheSerialReferenceAndCountWhatTheirPlansSay) {
  testing::HoldsInCases(kCases, [] {
    const Trial trial = DrawTrial(testing::DrawGrid(8));
    std::string wrong;
    const std::vector<Outcome> outcomes = TrainWorld(trial, Expected(trial));
    for (const Outcome& outcome : outcomes) wrong += outcome.wrong;
    RC_ASSERT(wrong == "");
    // Work that ranks or nodes repeat gives the same bits.
    for (std::size_t m = 0; m < trial.matrices.size(); ++m) {
      if (trial.matrices[m].layout == Layout::kSharded) continue;
      const bool in_nodes = trial.matrices[m].layout == Layout::kNodeSharded;
      for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
        const std::size_t first = in_nodes ? rank % trial.matrices[m].shard_rows.size() : 0;
        RC_ASSERT(outcomes[rank].weights[m] == outcomes[first].weights[m]);
      }
    }
  });
}

// Of the reductions to one rank and broadcasts from one: how many, and how many in split form.
std::pair<int, int> CountRooted(const Plan& plan) {
  int all = 0, split = 0;
  for (const Op& op : plan.ops) {
    const bool rooted = op.kind == OpKind::kReduce || op.kind == OpKind::kBroadcast;
    if (!rooted || op.bytes == 0 || op.piece > 0) continue;
    ++all;
    split += op.form == CollectiveForm::kSplit;
  }
  return {all, split};
}

// The model is gone, and its memory not in use, when a world begins.
Plan PlanOf(const Trial& trial) {
  RankModel model(trial.matrices, 0, trial.world(), trial.seed);
  return *PlanFor(SpecsOf(trial, model), trial.options);
}

std::int64_t CountPairs(const Plan& plan) {
  return std::count_if(plan.ops.begin(), plan.ops.end(), [](const Op& op) { return op.with_next; });
}

// The same model by costs under which no broadcast and reduction is split or paired, and by those
// under which all that can be are.
struct Forms {
  Trial direct, split, paired;
  Plan plan, in_pairs;  // of `direct` and `paired`
};

Forms DrawForms(const ProcessGrid& grid, const testing::DrawLimits& limits) {
  Trial direct = DrawTrial(grid, limits);
  direct.options.owner_time_limit = absl::InfiniteDuration();  // the same owners in all
  // What pays goes by costs, too.
  if (direct.options.pass_through == PassThrough::kWhereItPays) {
    direct.options.pass_through = PassThrough::kNever;
  }
  Forms forms{.direct = direct, .split = direct, .paired = direct, .plan = {}, .in_pairs = {}};
  const Topology& topology = direct.options.topology;
  forms.direct.options.costs = testing::CostsWithForms(topology, {});
  forms.split.options.costs = testing::CostsWithForms(topology, testing::kAlwaysSplit);
  forms.paired.options.costs = testing::CostsWithPairs(topology);
  forms.plan = PlanOf(forms.direct);
  forms.in_pairs = PlanOf(forms.paired);
  return forms;
}

TEST(RandomModels, FormsOfCollectivesChangeNoBit) {
  int cases = 0;
  std::int64_t pairs = 0;
  testing::HoldsInCases(kFormCases, [&] {
    // Most are of owners and groups of two, where there can be pairs. A plan costs little beside
    // the training, so they are drawn until there are.
    const bool may_pair = cases++ % 5 != 0;
    testing::DrawLimits limits;
    if (may_pair) limits.strategies = {Strategy::kOwner, Strategy::kNodeLocal};
    Forms forms;
    bool fit = false;
    for (int draw = 0; draw < kDraws && !fit; ++draw) {
      forms = DrawForms(may_pair ? ProcessGrid{2, 3} : testing::DrawGrid(8), limits);
      fit = CountRooted(forms.plan).first > 0 && (!may_pair || CountPairs(forms.in_pairs) > 0);
    }
    const auto& [direct, split, paired, plan, in_pairs] = forms;
    const auto [rooted, none] = CountRooted(plan);
    RC_PRE(rooted > 0);
    RC_ASSERT(none == 0);
    RC_ASSERT(CountPairs(plan) == 0);
    RC_ASSERT(in_pairs.ops.size() == plan.ops.size());
    pairs += CountPairs(in_pairs);
    RC_ASSERT(CountRooted(PlanOf(split)) == std::pair(rooted, rooted));
    const std::vector<Weights> expected = Expected(direct);
    const std::vector<Outcome> directly = TrainWorld(direct, expected);
    const std::vector<Outcome> in_parts = TrainWorld(split, expected);
    const std::vector<Outcome> pairwise = TrainWorld(paired, expected);
    for (int rank = 0; rank < direct.world(); ++rank) {
      RC_ASSERT(directly[rank].wrong == "");
      RC_ASSERT(in_parts[rank].wrong == "");
      RC_ASSERT(pairwise[rank].wrong == "");
      RC_ASSERT(directly[rank].weights == in_parts[rank].weights);
      RC_ASSERT(directly[rank].weights == pairwise[rank].weights);
    }
  });
  EXPECT_GT(pairs, 0);
}

}  // namespace
}  // namespace weft
