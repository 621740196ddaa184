// The runtime of one rank: what its calls share. Their code is in runtime.cc and, of what leaves
// and enters a runtime between steps, in runtime_state.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/annotations.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/description.h"
#include "runtime/checkpoint/source.h"
#include "runtime/communicators.h"
#include "runtime/decision_log.h"
#include "runtime/executor.h"
#include "runtime/host_timer.h"
#include "runtime/job_check.h"
#include "runtime/job_state.h"
#include "runtime/memory.h"
#include "runtime/op_issuer.h"
#include "runtime/passes.h"
#include "runtime/registration.h"
#include "runtime/step_recorder.h"
#include "runtime/trace.h"
#include "runtime/verdict.h"
#include "weft/runtime.h"

namespace weft::runtime {

// The matrices of one layer that a step delivers (owned ones are fetched instead).
struct LayerMatrices {
  std::vector<MatrixId> delivered;
  std::vector<int> delivered_by;  // the executor's ops
};

class RuntimeImpl final : public Runtime {
 public:
  RuntimeImpl(const RuntimeOptions& options, Device& device, Transport& transport)
      : options_(options),
        device_(device),
        transport_(transport),
        decisions_(options.decision_ring),
        recorder_(std::make_shared<StepRecorder>()),
        trace_(options.trace ? std::make_unique<Trace>(transport.rank()) : nullptr) {}

  ~RuntimeImpl() override { Shutdown(); }

  absl::StatusOr<MatrixId> AddMatrix(MatrixSpec spec) override;
  absl::Status Commit() override;
  absl::StatusOr<Job> Submit(const MatrixJob& job) override;
  absl::Status SetLossScale(double scale) override;
  absl::Status Step(Stream* caller) override;
  absl::Status Progress() override;
  absl::Status ParameterNeeded(int layer, Stream& stream) override;
  absl::Status WaitForLayer(int layer) override;
  absl::Status ParameterReleased(int layer, Stream* stream) override;
  absl::StatusOr<const void*> Parameter(MatrixId matrix) const override;
  absl::Status WaitForStep() override;
  std::int64_t steps() const override { return executor_ == nullptr ? 0 : executor_->step(); }
  const Plan& plan() const override { return plan_; }
  const std::optional<StrategyReport>& strategy_report() const override { return strategy_report_; }
  absl::StatusOr<absl::Span<float>> State(MatrixId matrix) override;
  absl::Status Save(const std::string& folder, const SaveOptions& options) override;
  absl::Status Load(const std::string& folder, const LoadOptions& options) override;
  absl::StatusOr<ExportedState> ExportState(const ExportOptions& options) override;
  absl::Status ImportState(const ExportedState& state, const LoadOptions& options) override;
  absl::StatusOr<StepMetrics> Metrics() override;
  absl::StatusOr<std::vector<StepMetrics>> MetricsOfAllRanks() override;
  std::vector<MatrixCounters> Counters() const override;
  std::vector<std::string> WithoutGradient(std::int64_t steps) const override;
  std::vector<Decision> Decisions() const override { return decisions_.Entries(); }
  std::string DescribeDecisions() const override {
    return Describe(decisions_.Entries(), plan_, transport_.rank());
  }
  void AddTraceSpan(std::string name, Nanos begin, Nanos end) override {
    if (trace_ != nullptr) trace_->Add(Trace::UserSpan{std::move(name), begin, end});
  }
  absl::Status WriteTrace(const std::string& path) override;

 private:
  // FailedPrecondition before Commit(), the failure after one.
  absl::Status CheckRunning() const;
  absl::Status TryCommit();
  absl::Status CompareWithPeers(const PlanRequest* request);
  // What Commit() does on this rank alone.
  absl::Status Prepare();
  absl::Status MakeRoomForStep(HostTimer& timer);
  // A gradient of `pass` comes, where each is reduced: the passes before are over.
  absl::Status BeginPass(int pass);
  // This rank's job of the open step, with the rates it uses.
  std::shared_ptr<JobState> Announce(MatrixId matrix);
  absl::StatusOr<const LayerMatrices*> Layer(int layer) const;
  // Owned weights of the layer; null `stream` means the host waits.
  absl::Status NeedOwned(int layer, Stream* stream);
  // FailedPrecondition, naming the matrix, while this rank has gradients in an open step.
  absl::Status CheckBetweenSteps() const;
  // FailedPrecondition once something has been asked of it since Commit(), loads left out.
  absl::Status CheckUnused() const;
  // Before an exchange: the last closed step is over, and what its end sets out is issued. What the
  // step came to is its jobs' news; a failure of the runtime.
  absl::Status Settle();
  Checkpoint MakeCheckpoint();
  // Collective: waits for the step, and tells what is to be saved besides tensors.
  absl::StatusOr<Description> DescribeRun(Checkpoint& checkpoint);
  absl::Status LookTogether(absl::Status& opened);
  absl::Status TakeFrom(absl::StatusOr<std::unique_ptr<StateSource>> source,
                        const LoadOptions& options);
  void GoOnFrom(const Description& description);
  void Shutdown();

  const RuntimeOptions options_;
  Device& device_;
  Transport& transport_;
  std::vector<MatrixSpec> specs_;
  std::set<std::string> names_;
  ClaimedWeights claimed_;
  Plan plan_;
  std::optional<StrategyReport> strategy_report_;
  DecisionLog decisions_;
  // Shared with job handles, which may outlive the runtime.
  std::shared_ptr<StepRecorder> recorder_;
  std::unique_ptr<Trace> trace_;
  std::map<int, LayerMatrices> layers_;
  // Jobs of the open step, and of the last closed one.
  std::vector<std::shared_ptr<JobState>> open_jobs_;
  std::vector<std::shared_ptr<JobState>> closed_jobs_;
  std::vector<MicroSteps> micro_steps_;  // by matrix
  int pass_ = 0;                         // that gradients have come to, where each is reduced
  double loss_scale_ = 1;
  std::vector<Ballot> ballots_;  // by matrix; rates stay from step to step
  Nanos clock_offset_ = 0;       // to rank 0's clock
  absl::Status commit_failure_;
  std::unique_ptr<Communicators> communicators_;
  Annotations annotations_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<OpIssuer> issuer_;
  std::unique_ptr<Verdict> verdict_;
  std::unique_ptr<Passes> passes_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace weft::runtime
