#include "train_gpt/trainer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "train_gpt/weights.h"

namespace train_gpt {
namespace {

constexpr double kNanosPerSecond = 1e9;

class RankTrainer {
 public:
  RankTrainer(const TrainerOptions& options, const Corpus& corpus, weft::Device& device,
              weft::Transport& transport)
      : options_(options),
        corpus_(corpus),
        device_(device),
        transport_(transport),
        model_(options.model, std::max(options.batch_per_rank, options.evaluation_sequences)) {}

  absl::StatusOr<RankResult> Run() {
    if (absl::Status status = SetUp(); !status.ok()) return status;
    for (int step = 0; step < options_.steps; ++step) {
      const bool evaluates = step % options_.evaluate_every == 0;
      if (evaluates) {
        if (absl::Status status = Evaluate(step); !status.ok()) return status;
        step_begin_.reset();
      }
      if (absl::Status status = TrainStep(step, !evaluates); !status.ok()) return status;
    }
    if (absl::Status status = Evaluate(options_.steps); !status.ok()) return status;
    if (absl::Status status = CollectMetrics(); !status.ok()) return status;
    result_.counters = runtime_->Counters();
    if (!options_.trace.empty()) {
      if (absl::Status status = runtime_->WriteTrace(options_.trace); !status.ok()) return status;
    }
    return std::move(result_);
  }

 private:
  absl::Status SetUp() {
    model_.Initialize(options_.seed);
    auto weights = Weights::Create(options_.layout, model_, device_, transport_);
    if (!weights.ok()) return weights.status();
    weights_ = *std::move(weights);

    weft::RuntimeOptions runtime_options;
    runtime_options.topology = options_.topology;
    runtime_options.strategy = options_.strategy;
    runtime_options.trace = !options_.trace.empty();
    // The comparison is of whole strategies; and no profile tells what NS costs on this machine.
    runtime_options.pass_through = weft::PassThrough::kNever;
    auto runtime = weft::Runtime::Create(runtime_options, device_, transport_);
    if (!runtime.ok()) return runtime.status();
    runtime_ = *std::move(runtime);

    for (int p = 0; p < static_cast<int>(model_.parameters().size()); ++p) {
      const Parameter& parameter = model_.parameters()[p];
      weft::MatrixSpec spec;
      spec.name = parameter.name;
      spec.rows = parameter.rows;
      spec.cols = parameter.cols;
      spec.weight = weights_->Updated(p);
      spec.layout = options_.layout;
      spec.gradient = weft::GradientKind::kLocal;
      spec.layer = parameter.layer;
      spec.rule = RuleOf(parameter);
      spec.shard_rows = weights_->ShardRows(p);
      auto id = runtime_->AddMatrix(std::move(spec));
      if (!id.ok()) return id.status();
      matrices_.push_back(*id);
    }
    return runtime_->Commit();
  }

  bool UsesMuon(const Parameter& parameter) const {
    return options_.optimizer == Optimizer::kMuon && parameter.hidden;
  }

  weft::Rule RuleOf(const Parameter& parameter) const {
    if (UsesMuon(parameter)) return options_.muon;
    weft::AdamWOptions adamw = options_.adamw;
    if (!parameter.hidden) adamw.weight_decay = 0;
    return adamw;
  }

  absl::Status TrainStep(int step, bool timed) {
    const Batch batch = corpus_.Training(
        options_.seed, step, {transport_.rank(), transport_.size(), options_.batch_per_rank});
    const weft::Nanos begin = device_.clock().Now();
    if (step_begin_) {
      result_.step_seconds.push_back(static_cast<double>(begin - *step_begin_) / kNanosPerSecond);
    }
    if (timed) step_begin_ = begin;

    auto loss = Forward(batch, options_.batch_per_rank);
    if (!loss.ok()) return loss.status();
    result_.losses.push_back(*loss);
    if (absl::Status status = CollectMetrics(); !status.ok()) return status;
    const weft::Nanos middle = device_.clock().Now();
    runtime_->AddTraceSpan("forward", begin, middle);

    absl::Status submitted;
    const double rate = RateFactor(step);
    model_.Backward([&](int p) {
      if (!submitted.ok()) return;
      weft::MatrixJob job;
      job.matrix = matrices_[p];
      job.gradient = model_.gradient(p).data();
      const double lr = UsesMuon(model_.parameters()[p]) ? options_.muon.lr : options_.adamw.lr;
      job.lr = rate * lr;
      submitted = runtime_->Submit(job).status();
    });
    if (!submitted.ok()) return submitted;
    runtime_->AddTraceSpan("backward", middle, device_.clock().Now());
    return runtime_->Step();
  }

  // Waits layer by layer, so that updates still under way hide behind the layers before them.
  absl::StatusOr<double> Forward(const Batch& batch, int sequences) {
    absl::Status ready;
    const double loss = model_.Forward(batch.tokens, batch.targets, sequences, [&](int layer) {
      if (ready.ok()) ready = runtime_->WaitForLayer(layer);
      if (ready.ok()) ready = weights_->Gather(layer);
    });
    if (!ready.ok()) return ready;
    return loss;
  }

  absl::Status Evaluate(int step) {
    const Share share = {transport_.rank(), transport_.size(), options_.evaluation_sequences};
    auto loss = Forward(corpus_.HeldOut(share), options_.evaluation_sequences);
    if (!loss.ok()) return loss.status();
    result_.evaluations.push_back({step, *loss});
    return absl::OkStatus();
  }

  // Follows a forward pass, which has waited for every layer: what is left of the last step is its
  // bookkeeping.
  absl::Status CollectMetrics() {
    if (runtime_->steps() == 0) return absl::OkStatus();
    if (absl::Status status = runtime_->WaitForStep(); !status.ok()) return status;
    auto metrics = runtime_->Metrics();
    if (!metrics.ok()) return metrics.status();
    if (result_.metrics.empty() || result_.metrics.back().step != metrics->step) {
      result_.metrics.push_back(*metrics);
    }
    return absl::OkStatus();
  }

  double RateFactor(int step) const {
    if (step < options_.warmup_steps) return (step + 1.0) / (options_.warmup_steps + 1.0);
    const double left = static_cast<double>(options_.steps - step) /
                        std::max(1, options_.steps - options_.warmup_steps);
    return 0.1 + 0.9 * left;
  }

  const TrainerOptions& options_;
  const Corpus& corpus_;
  weft::Device& device_;
  weft::Transport& transport_;
  Gpt<float> model_;
  std::unique_ptr<Weights> weights_;
  // Last, because its work in flight uses what is above.
  std::unique_ptr<weft::Runtime> runtime_;
  std::vector<weft::MatrixId> matrices_;
  std::optional<weft::Nanos> step_begin_;  // of the last step, if it is timed
  RankResult result_;
};

}  // namespace

absl::StatusOr<RankResult> TrainRank(const TrainerOptions& options, const Corpus& corpus,
                                     weft::Device& device, weft::Transport& transport) {
  absl::StatusOr<RankResult> result = RankTrainer(options, corpus, device, transport).Run();
  if (!result.ok()) transport.Abort(result.status());
  return result;
}

absl::StatusOr<std::vector<RankResult>> TrainLocally(const TrainerOptions& options,
                                                     const Corpus& corpus) {
  weft::LocalTransportOptions transport_options;
  transport_options.topology = options.topology;
  auto transports = weft::CreateLocalTransports(transport_options);
  if (!transports.ok()) return transports.status();

  const int ranks = options.topology.grid.size();
  std::vector<std::unique_ptr<weft::Device>> devices;
  for (int rank = 0; rank < ranks; ++rank) {
    auto device = weft::CreateHostDevice();
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  std::vector<absl::StatusOr<RankResult>> outcomes(ranks, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      outcomes[rank] = TrainRank(options, corpus, *devices[rank], *(*transports)[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<RankResult> results;
  for (auto& outcome : outcomes) {
    if (!outcome.ok()) return outcome.status();
    results.push_back(*std::move(outcome));
  }
  return results;
}

}  // namespace train_gpt
