#include "tests/cuda/stream_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "tests/support/costs.h"
#include "tests/support/forwarding.h"
#include "tests/support/model.h"

namespace weft::testing {
namespace {

constexpr int kLayers = 3;
constexpr int kPerLayer = 2;
constexpr std::uint64_t kSeed = 4711;

// Device memory with `values` in it.
std::unique_ptr<Buffer> OnDevice(Device& device, const std::vector<float>& values) {
  auto buffer = device.Allocate(values.size() * sizeof(float));
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_TRUE(device.CopyNow((*buffer)->data(), values.data(), (*buffer)->bytes()).ok());
  return *std::move(buffer);
}

// Shows each stream that it makes.
class ShowingDevice : public ForwardingDevice {
 public:
  using Show = std::function<void(const std::string& name, Stream& stream)>;

  ShowingDevice(Device& inner, Show show) : ForwardingDevice(inner), show_(std::move(show)) {}

  std::unique_ptr<Stream> CreateStream(std::string name, StreamPriority priority) override {
    std::unique_ptr<Stream> stream = ForwardingDevice::CreateStream(name, priority);
    if (show_) show_(name, *stream);
    return stream;
  }

 private:
  const Show show_;
};

class Trainer {
 public:
  Trainer(const Scenario& scenario, Rank rank, int steps)
      : scenario_(scenario),
        rank_(rank),
        device_(rank.device, scenario.on_stream),
        steps_(steps),
        model_(Matrices(scenario), rank.rank, scenario.grid.size(), kSeed),
        engine_(scenario.order * 7919 + static_cast<std::uint64_t>(rank.rank)),
        stream_(device_.CreateStream("main", StreamPriority::kNormal)) {
    RuntimeOptions options = OptionsFor(scenario.grid, scenario.strategy);
    options.pass_through = PassThrough::kNever;
    if (scenario.options) scenario.options(options);
    if (scenario.judged) options.completions = &completions_;
    passes_ = options.limits.passes;
    each_pass_ = options.limits.reduce_each_pass;
    runtime_ = *Runtime::Create(options, device_, rank.transport);
    for (int reader = 0; reader < kLayers * Uses(); ++reader) {
      read_.push_back(device_.CreateEvent());
      readers_.push_back(
          device_.CreateStream("layer " + std::to_string(reader), StreamPriority::kNormal));
    }
    activations_.resize(Uses());
    sources_.resize(steps);
    gradients_.resize(std::size_t(steps) * Passes());
    for (std::size_t m = 0; m < model_.size(); ++m) Register(m);
    Expect(runtime_->Commit());
  }

  // Ends with everything done.
  std::vector<std::vector<float>> Run() {
    for (int step = 0; step < steps_ && !failed_; ++step) {
      for (int pass = 0; pass < Passes(); ++pass) Pass(step, pass);
      if (failed_) break;
      if (!Owned() && scenario_.reads_apart) Forward(0);
      // What is not fetched may change with the step: a trainer's own, and an owner's.
      if (scenario_.mixed || (!Owned() && scenario_.reads_apart)) {
        for (const auto& read : read_) stream_->Wait(*read);
      }
      if (scenario_.reads_as_owner) ReadAsOwner(step);
      Expect(runtime_->Step(stream_.get()));
      if (scenario_.waits_once && step == 0 && !failed_) Expect(runtime_->WaitForStep());
    }
    if (scenario_.after_steps) scenario_.after_steps(rank_.rank);
    if (left_) return {};
    if (!Owned()) Forward(0);
    if (!failed_) {
      const absl::Status outcome = runtime_->WaitForStep();
      if (!scenario_.judged) Expect(outcome);
    }
    Expect(stream_->Synchronize(absl::Seconds(120)));
    for (const auto& reader : readers_) Expect(reader->Synchronize(absl::Seconds(120)));
    std::vector<std::vector<float>> weights;
    // What a failed runtime has enqueued may still write them.
    if (failed_) return weights;
    for (std::size_t m = 0; m < model_.size(); ++m) weights.push_back(WeightOf(m));
    if (scenario_.judged) AddOutcomes(weights);
    return weights;
  }

 private:
  static std::vector<ModelMatrix> Matrices(const Scenario& scenario) {
    std::vector<ModelMatrix> matrices;
    for (int layer = 0; layer < kLayers; ++layer) {
      matrices.push_back({{8, 12}, scenario.layout, scenario.gradient});
      const Layout odd = scenario.mixed ? Layout::kReplicated : scenario.layout;
      matrices.push_back({{6, 4 + layer}, odd, scenario.gradient});
    }
    for (ModelMatrix& matrix : matrices) {
      if (matrix.layout != Layout::kNodeSharded) continue;
      matrix.shard_rows = DefaultShardRows(matrix.shape.rows, scenario.grid.ranks_per_node);
    }
    return matrices;
  }

  bool Owned() const { return scenario_.layout == Layout::kOwned; }
  bool EachPass() const { return each_pass_ && scenario_.gradient == GradientKind::kLocal; }
  int Passes() const { return Owned() || EachPass() ? passes_ : 1; }
  // Of a layer's weights in a step, each on a stream of its own, so that what one waits for helps
  // no other. What uses memory of the trainer's own does so in the trainer's order: one stream.
  int Uses() const { return Owned() ? 2 * Passes() : 1; }
  void Expect(const absl::Status& status) {
    if (status.ok()) return;
    failed_ = true;
    if (scenario_.on_error) return scenario_.on_error(rank_.rank, status);
    ADD_FAILURE() << scenario_.name << ", rank " << rank_.rank << ": " << status;
  }

  void Register(std::size_t m) {
    Rule rule = MuonOptions{.periodic = {.period = scenario_.period}};
    if (scenario_.adamw && m % 2 == 1) rule = AdamWOptions{};
    MatrixSpec spec = model_.Spec(m, rule);
    spec.layer = static_cast<int>(m) / kPerLayer;
    weights_.push_back(OnDevice(device_, model_.weight(m)));
    spec.weight = weights_.back()->data();
    Expect(runtime_->AddMatrix(spec).status());
    // All memory is there before the first step: what allocates waits for the device.
    for (int step = 0; step < steps_; ++step) {
      std::vector<float> gradient = model_.Gradient(m, step);
      const bool fails = scenario_.judged && step + 1 == steps_ && m == 0 && rank_.rank == 0;
      if (fails) gradient[0] = std::numeric_limits<float>::quiet_NaN();
      sources_[step].push_back(OnDevice(device_, gradient));
    }
    for (auto& gradients : gradients_) {
      gradients.push_back(OnDevice(device_, std::vector<float>(model_.Gradient(m, 0).size())));
    }
    for (auto& activations : activations_) {
      activations.push_back(OnDevice(
          device_, std::vector<float>(Owned() ? model_.Size(m) : model_.weight(m).size())));
    }
    kept_.push_back(OnDevice(device_, std::vector<float>(model_.Size(m))));
    ready_.push_back(device_.CreateEvent());
    jobs_.emplace_back();
    before_.emplace_back();
  }

  void Pass(int step, int pass) {
    if (Owned() || (pass == 0 && !scenario_.reads_apart)) Forward(pass);
    std::vector<int> ids(model_.size());
    std::iota(ids.rbegin(), ids.rend(), 0);
    if (scenario_.order != 0) std::shuffle(ids.begin(), ids.end(), engine_);
    for (const int m : ids) {
      if (failed_) return;
      const int layer = m / kPerLayer;
      const bool first = m % kPerLayer == kPerLayer - 1;
      const int use = 2 * pass + 1;
      const LastUse end =
          pass == Passes() - 1 && layer == 0 ? scenario_.last_use : LastUse::kReleased;
      if (Owned() && first && end != LastUse::kNotBegun) Read(layer, use);
      // Backward needs what forward has made of the weights.
      if (!Owned() || !scenario_.reads_apart) stream_->Wait(ReadOf(layer, Owned() ? use : 0));
      if (scenario_.before_submit && !scenario_.before_submit({rank_, *stream_, step, m})) {
        left_ = failed_ = true;
        return;
      }
      Submit(m, step, pass);
      if (Owned() && !first && end == LastUse::kReleased)
        Expect(runtime_->ParameterReleased(layer, &Reader(layer, use)));
      if (end == LastUse::kHeld && !first) stream_->Wait(ReadOf(layer, use));
    }
  }

  Stream& Reader(int layer, int use) { return *readers_[use * kLayers + layer]; }
  Event& ReadOf(int layer, int use) { return *read_[use * kLayers + layer]; }

  // An owner has its weights at all times.
  void ReadAsOwner(int step) {
    for (std::size_t m = 0; m < model_.size(); ++m) {
      if (runtime_->plan().matrices[m].owner != rank_.rank) continue;
      const auto weight = runtime_->Parameter(static_cast<int>(m));
      Expect(weight.status());
      if (failed_) return;
      if (step > 0) Expect(before_[m].WaitOn(*stream_, Stage::kDelivered));
      device_.Copy(*stream_, kept_[m]->data(), *weight, kept_[m]->bytes());
    }
    before_ = jobs_;
  }

  void Forward(int pass) {
    const int use = Owned() ? 2 * pass : 0;
    for (int layer = 0; layer < kLayers && !failed_; ++layer) {
      Read(layer, use);
      if (Owned()) Expect(runtime_->ParameterReleased(layer, &Reader(layer, use)));
    }
  }

  // What a layer computes: it reads the weights, and writes what it makes of them.
  void Read(int layer, int use) {
    Stream& stream = Reader(layer, use);
    const Buffers& activations = activations_[use];
    Expect(runtime_->ParameterNeeded(layer, stream));
    for (int m = layer * kPerLayer; m < (layer + 1) * kPerLayer && !failed_; ++m) {
      const auto weight = runtime_->Parameter(m);
      Expect(weight.status());
      if (failed_ || activations[m]->bytes() == 0) continue;
      device_.Copy(stream, activations[m]->data(), *weight, activations[m]->bytes());
      // Its own weights a trainer may change, as by clipping them.
      if (!Owned()) {
        device_.Copy(stream, weights_[m]->data(), activations[m]->data(), activations[m]->bytes());
      }
    }
    stream.Record(ReadOf(layer, use));
  }

  void Submit(int m, int step, int pass) {
    const bool whole = pass == Passes() - 1;
    if (!whole && !EachPass()) return;
    std::vector<float> gradient = model_.Gradient(m, step);
    if (scenario_.gradient_now) {
      Expect(runtime_->Submit({.matrix = m, .gradient = gradient.data(), .more = !whole}).status());
      return;
    }
    const Buffer& source = *sources_[step][m];
    void* to = gradients_[scenario_.reuses_gradients ? 0 : step * Passes() + pass][m]->data();
    // The memory is the trainer's again when what was in it is reduced.
    if (scenario_.reuses_gradients && step > 0) {
      Expect(jobs_[m].WaitOn(*stream_, scenario_.reused_after));
    }
    device_.Copy(*stream_, to, source.data(), source.bytes());
    stream_->Record(*ready_[m]);
    auto job =
        runtime_->Submit({.matrix = m, .gradient = to, .ready = ready_[m].get(), .more = !whole});
    Expect(job.status());
    if (job.ok() && whole) jobs_[m] = *job;
  }

  // By matrix, the stages of its last job in the order in which they came, each with its outcome.
  void AddOutcomes(std::vector<std::vector<float>>& results) {
    const std::size_t first = results.size();
    results.resize(first + model_.size());
    while (const std::optional<Completion> completion = completions_.Poll()) {
      if (completion->step + 1 != steps_) continue;
      std::vector<float>& of_matrix = results[first + static_cast<std::size_t>(completion->matrix)];
      of_matrix.push_back(static_cast<float>(completion->stage));
      of_matrix.push_back(static_cast<float>(
          std::hash<std::string>()(completion->status.ToString()) % (1U << 20U)));
    }
  }

  std::vector<float> WeightOf(std::size_t m) {
    const bool owned = Owned() && !(scenario_.mixed && m % 2 == 1);
    const Buffer& kept = owned ? *activations_.back()[m] : *weights_[m];
    std::vector<float> values(kept.bytes() / sizeof(float));
    Expect(device_.CopyNow(values.data(), kept.data(), kept.bytes()));
    return values;
  }

  const Scenario& scenario_;
  const Rank rank_;
  ShowingDevice device_;
  const int steps_;
  RankModel model_;
  std::mt19937_64 engine_;
  int passes_ = 1;
  bool each_pass_ = false;
  bool failed_ = false;
  bool left_ = false;
  using Buffers = std::vector<std::unique_ptr<Buffer>>;  // by matrix
  Buffers weights_, kept_;
  std::vector<Buffers> activations_;  // by use
  std::vector<Buffers> sources_;      // of gradients, by step
  std::vector<Buffers> gradients_;    // by step and pass
  std::vector<std::unique_ptr<Event>> ready_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Stream>> readers_;  // by use and layer
  std::vector<std::unique_ptr<Event>> read_;
  CompletionQueue completions_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<Job> jobs_, before_;  // of this step, and of the one before
};

}  // namespace

std::vector<Scenario> Scenarios() {
  std::vector<Scenario> all;
  for (const ProcessGrid& grid : {ProcessGrid{1, 1}, ProcessGrid{1, 2}, ProcessGrid{2, 2}}) {
    const std::string suffix =
        "_" + std::to_string(grid.nodes) + "x" + std::to_string(grid.ranks_per_node);
    const auto add = [&](std::string name, Scenario scenario) {
      scenario.name = std::move(name) + suffix;
      scenario.grid = grid;
      all.push_back(std::move(scenario));
    };
    add("replicated", {.strategy = Strategy::kReplicated});
    add("gather", {.strategy = Strategy::kGather, .layout = Layout::kSharded});
    add("owner_replicated", {.adamw = true});
    add("owner_sharded", {.layout = Layout::kSharded, .adamw = true});
    if (grid.size() == 1) continue;
    if (grid.nodes > 1) {
      add("node_local", {.strategy = Strategy::kNodeLocal, .adamw = true});
      add("node_local_sharded",
          {.strategy = Strategy::kNodeLocal, .layout = Layout::kSharded, .adamw = true});
      add("node_sharded_gather", {.strategy = Strategy::kGather, .layout = Layout::kNodeSharded});
      add("node_sharded_owner",
          {.layout = Layout::kNodeSharded, .gradient = GradientKind::kReplica, .adamw = true});
      add("node_sharded_node_local", {.strategy = Strategy::kNodeLocal,
                                      .layout = Layout::kNodeSharded,
                                      .gradient = GradientKind::kReplica});
    }
    add("layerwise", {.strategy = Strategy::kLayerwise, .adamw = true});
    add("layerwise_sharded", {.strategy = Strategy::kLayerwise,
                              .layout = Layout::kSharded,
                              // Exchanges of two matrices.
                              .options = [](RuntimeOptions& o) { o.limits.exchange_bytes = 500; },
                              .adamw = true});
    add("layerwise_reduced", {.strategy = Strategy::kLayerwise,
                              .layout = Layout::kSharded,
                              .gradient = GradientKind::kReduced});
    add("reduced", {.layout = Layout::kSharded, .gradient = GradientKind::kReduced});
    // Together: what takes turns at a buffer with something that never refreshes in its steps waits
    // for it all the same, and nothing needs that.
    const auto together = [](RuntimeOptions& o) { o.spread_refreshes = false; };
    add("periodic_gather", {.strategy = Strategy::kGather,
                            .layout = Layout::kSharded,
                            .options = together,
                            .period = 2});
    add("periodic_owner", {.period = 2});
    add("periodic_shards", {.layout = Layout::kSharded, .options = together, .period = 2});
    add("owned", {.layout = Layout::kOwned});
    add("mixed", {.layout = Layout::kOwned, .adamw = true, .mixed = true});
    add("held", {.layout = Layout::kOwned, .last_use = LastUse::kHeld});
    add("clipped", {.options = [](RuntimeOptions& o) {
          o.max_gradient_norm = 0.5;
          o.limits.bucket_bytes = 0;
        }});
    add("turns", {.options = [](RuntimeOptions& o) {
          o.limits.buffers_in_turn = 1;
          o.limits.bucket_bytes = 0;
          o.limits.piece_bytes = 128;
        }});
    add("one_in_flight", {.layout = Layout::kSharded, .options = [](RuntimeOptions& o) {
                            o.limits.collectives_in_flight = 1;
                            o.limits.buffers_in_turn = 1;
                            o.limits.bucket_bytes = 0;
                          }});
    add("each_pass", {.options = [](RuntimeOptions& o) {
          o.limits.passes = 2;
          o.limits.reduce_each_pass = true;
        }});
    add("owned_each_pass", {.layout = Layout::kOwned, .options = [](RuntimeOptions& o) {
                              o.limits.passes = 2;
                              o.limits.reduce_each_pass = true;
                              o.limits.bucket_bytes = 0;
                            }});
    add("pairs", {.options = [](RuntimeOptions& o) {
          o.costs = CostsWithPairs(o.topology);
          o.limits.bucket_bytes = 0;
        }});
    add("split", {.options = [](RuntimeOptions& o) {
          o.costs = CostsWithForms(o.topology, kAlwaysSplit);
          o.limits.bucket_bytes = 0;
        }});
    add("pass_through",
        {.options = [](RuntimeOptions& o) { o.pass_through = PassThrough::kAlways; }});
    add("gradient_now", {.gradient_now = true});
    add("reused", {.reuses_gradients = true});
  }
  return all;
}

WeightsByRank TrainOnStreams(const Scenario& scenario, int steps, WorldRunner run) {
  WeightsByRank weights(scenario.grid.size());
  run({.grid = scenario.grid}, [&](Rank rank) {
    Trainer trainer(scenario, rank, steps);
    if (scenario.before_steps) scenario.before_steps();
    weights[rank.rank] = trainer.Run();
  });
  return weights;
}

}  // namespace weft::testing
