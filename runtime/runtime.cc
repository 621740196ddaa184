#include "weft/runtime.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "runtime/advice.h"
#include "runtime/auto_strategy.h"
#include "runtime/clock_offset.h"
#include "runtime/host_timer.h"
#include "runtime/job_check.h"
#include "runtime/messages.h"
#include "runtime/owners.h"
#include "runtime/runtime_impl.h"
#include "weft/safetensors.h"

namespace weft {
namespace runtime {

absl::StatusOr<MatrixId> RuntimeImpl::AddMatrix(MatrixSpec spec) {
  WEFT_RETURN_IF_ERROR(commit_failure_);
  if (executor_ != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("matrix '", spec.name, "': added after Commit()"));
  }
  WEFT_RETURN_IF_ERROR(CheckSpec(spec, options_.topology.grid, transport_.rank()));
  if (names_.count(spec.name) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("matrix '", spec.name, "' is registered twice"));
  }
  CompleteSpec(spec, options_.topology.grid);
  WEFT_RETURN_IF_ERROR(ClaimWeight(spec, transport_.rank(), claimed_));
  names_.insert(spec.name);
  specs_.push_back(std::move(spec));
  return static_cast<MatrixId>(specs_.size() - 1);
}

absl::Status RuntimeImpl::CompareWithPeers(const PlanRequest* request) {
  const base::Range range(kCompare, transport_.size());
  const std::string manifest = absl::StrJoin(Manifest(specs_, options_, request), "\n");
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(manifest));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> hashes,
                        communicators_->ExchangeNumbers({hash}, "registration"));
  if (std::all_of(hashes.begin(), hashes.end(), [&](std::int64_t h) { return h == hash; })) {
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> manifests,
                        communicators_->ExchangeText(manifest, "registration"));
  return CompareManifests(manifests);
}

absl::Status RuntimeImpl::Commit() {
  WEFT_RETURN_IF_ERROR(commit_failure_);
  if (executor_ != nullptr) return absl::FailedPreconditionError("Commit() was called before");
  if (specs_.empty()) return absl::FailedPreconditionError("no matrix is registered");
  const base::Range range(kCommit, transport_.size());
  commit_failure_ = TryCommit();
  if (!commit_failure_.ok()) executor_.reset();
  return commit_failure_;
}

absl::Status RuntimeImpl::Prepare() {
  const base::Range range(kPrepare, transport_.size());
  annotations_ = Annotations(plan_, transport_.rank(), *communicators_);
  WEFT_ASSIGN_OR_RETURN(memory_, Memory::Create(device_, plan_, specs_, transport_.rank()));
  WEFT_ASSIGN_OR_RETURN(issuer_, OpIssuer::Create(device_, plan_, specs_, transport_.rank(),
                                                  *memory_, *communicators_));
  WEFT_ASSIGN_OR_RETURN(verdict_,
                        Verdict::Create(device_, plan_, transport_.rank(),
                                        {.missing_gradient = options_.missing_gradient,
                                         .non_finite = options_.non_finite,
                                         .max_gradient_norm = options_.max_gradient_norm}));
  executor_ = std::make_unique<Executor>(Executor::Context{
      device_, transport_, plan_, transport_.rank(), *memory_, *issuer_, *verdict_, *recorder_,
      decisions_, annotations_, trace_.get(), options_.deadline});
  WEFT_RETURN_IF_ERROR(executor_->Prepare());
  Advise(plan_, device_, transport_);
  return issuer_->WarmUp();
}

absl::Status RuntimeImpl::TryCommit() {
  WEFT_ASSIGN_OR_RETURN(communicators_, Communicators::Create(options_.name, device_, transport_));
  // With auto_strategy that of `owner`, which has all that a request may have.
  absl::StatusOr<PlanRequest> request = MakePlanRequest(
      specs_, options_.auto_strategy ? OptionsUnder(Strategy::kOwner, options_) : options_);
  WEFT_RETURN_IF_ERROR(CompareWithPeers(request.ok() ? &*request : nullptr));
  WEFT_RETURN_IF_ERROR(communicators_->Agree(request.status(), "plan"));
  if (options_.auto_strategy) {
    WEFT_ASSIGN_OR_RETURN(plan_,
                          PlanOfShortestStep(specs_, options_, device_.clock(), transport_.rank(),
                                             *communicators_, strategy_report_.emplace()));
  } else {
    WEFT_ASSIGN_OR_RETURN(plan_, BuildWithOwners(*std::move(request), options_, device_.clock(),
                                                 transport_.rank(), communicators_.get()));
  }
  const auto fingerprint = static_cast<std::int64_t>(Fingerprint(plan_));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> fingerprints,
                        communicators_->ExchangeNumbers({fingerprint}, "plan"));
  for (std::size_t rank = 0; rank < fingerprints.size(); ++rank) {
    if (fingerprints[rank] != fingerprints[0]) {
      return absl::InternalError(absl::StrCat("rank ", rank,
                                              " made another plan than rank 0 from equal "
                                              "registrations; are they the same build?"));
    }
  }
  WEFT_RETURN_IF_ERROR(communicators_->CreateFor(plan_));
  WEFT_RETURN_IF_ERROR(communicators_->Agree(Prepare(), "preparation"));
  WEFT_ASSIGN_OR_RETURN(clock_offset_,
                        OffsetToRankZero(device_.clock(), transport_.rank(), *communicators_));
  if (trace_ != nullptr) trace_->set_offset(clock_offset_);
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const MatrixSpec& spec = specs_[i];
    LayerMatrices& layer = layers_[spec.layer];
    if (spec.layout != Layout::kOwned) layer.delivered.push_back(static_cast<MatrixId>(i));
    const std::int64_t rows =
        spec.gradient == GradientKind::kLocal ? spec.rows : HeldRows(spec, transport_.rank());
    ballots_.push_back({.empty = rows * spec.cols == 0,
                        .lr = DefaultLr(specs_[i].rule),
                        .weight_decay = DefaultWeightDecay(specs_[i].rule)});
  }
  for (auto& [unused, layer] : layers_) {
    layer.delivered_by = executor_->DeliveredBy(layer.delivered);
  }
  micro_steps_ = MicroStepsOf(plan_);
  open_jobs_.resize(specs_.size());
  closed_jobs_.resize(specs_.size());
  passes_ = std::make_unique<Passes>(plan_);
  return absl::OkStatus();
}

absl::Status RuntimeImpl::CheckRunning() const {
  WEFT_RETURN_IF_ERROR(commit_failure_);
  if (executor_ == nullptr) return absl::FailedPreconditionError("Commit() has not been called");
  if (executor_->issuing()) {
    return absl::FailedPreconditionError("a rule must not call the runtime that runs it");
  }
  return executor_->failure();
}

absl::Status RuntimeImpl::MakeRoomForStep(HostTimer& timer) {
  const std::int64_t two_before = executor_->step() - 2;
  if (two_before < executor_->completed_steps()) return absl::OkStatus();
  const Nanos begin = device_.clock().Now();
  // What that step came to is its own jobs' news.
  (void)executor_->WaitForStep(two_before);
  timer.Blocked(device_.clock().Now() - begin);
  return executor_->failure();
}

std::shared_ptr<JobState> RuntimeImpl::Announce(MatrixId matrix) {
  auto job =
      std::make_shared<JobState>(specs_[matrix].name, matrix, executor_->step(), device_.clock(),
                                 options_.completions, annotations_.matrix(matrix));
  job->set_wait_listener([recorder = recorder_](std::int64_t step, Nanos begin, Nanos end) {
    recorder->AddWait(step, begin, end);
  });
  open_jobs_[matrix] = job;
  executor_->Announce(matrix, job, ballots_[matrix].lr, ballots_[matrix].weight_decay);
  job->MarkReached(Stage::kSubmitted, absl::OkStatus());
  return job;
}

absl::Status RuntimeImpl::BeginPass(int pass) {
  if (pass <= pass_) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(executor_->CheckGradientsOf(pass - 1));
  const auto end = static_cast<std::int32_t>(plan_.uses.size()) / plan_.limits.passes * pass;
  for (const std::int32_t use : passes_->LeaveOut(end)) executor_->Skip(use);
  WEFT_RETURN_IF_ERROR(executor_->BeginPass(pass, end));
  pass_ = pass;
  return absl::OkStatus();
}

absl::StatusOr<Job> RuntimeImpl::Submit(const MatrixJob& job) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  if (job.matrix < 0 || job.matrix >= static_cast<MatrixId>(specs_.size())) {
    return absl::NotFoundError(absl::StrCat("no matrix has the id ", job.matrix));
  }
  const MatrixSpec& spec = specs_[job.matrix];
  const std::int64_t step = executor_->step();
  if (open_jobs_[job.matrix] != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("matrix '", spec.name, "' already has a gradient in step ", step));
  }
  const bool none = job.gradient == nullptr && !ballots_[job.matrix].empty;
  if (none && options_.missing_gradient == MissingGradient::kError) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix '", spec.name, "': its gradient is null"));
  }
  MicroSteps& micro_steps = micro_steps_[job.matrix];
  WEFT_RETURN_IF_ERROR(CheckJob(spec.name, micro_steps, job));
  HostTimer timer(*recorder_, device_.clock(), step);
  WEFT_RETURN_IF_ERROR(MakeRoomForStep(timer));
  const Nanos begin = device_.clock().Now();
  const bool each = executor_->ReducesEachPass(job.matrix);
  if (each) WEFT_RETURN_IF_ERROR(BeginPass(micro_steps.done));
  // A job without a gradient adds nothing to the parts that are there, and is none of them.
  if (each || (!micro_steps.has_gradient && !(job.more && none))) {
    WEFT_RETURN_IF_ERROR(executor_->TakeGradient(job.matrix, job.gradient, job.ready));
  } else if (job.gradient != nullptr) {
    WEFT_RETURN_IF_ERROR(executor_->AddGradient(job.matrix, job.gradient, job.ready));
  }
  ++micro_steps.done;
  micro_steps.has_gradient |= !none;
  if (each) executor_->GradientTaken(job.matrix);
  if (job.more) {
    if (each) executor_->IssueReady();
    return Job();
  }
  const bool present = micro_steps.has_gradient;
  micro_steps = {.meant = micro_steps.meant};
  if (trace_ != nullptr) trace_->Add(Trace::JobSpan{step, job.matrix, begin});
  recorder_->AddJob(step);
  Ballot& ballot = ballots_[job.matrix];
  ballot.gradient = present ? Ballot::Gradient::kPresent : Ballot::Gradient::kZeros;
  ballot.lr = job.lr.value_or(ballot.lr);
  ballot.weight_decay = job.weight_decay.value_or(ballot.weight_decay);
  std::shared_ptr<JobState> state = Announce(job.matrix);
  executor_->IssueReady();
  return Job(std::move(state));
}

absl::Status RuntimeImpl::SetLossScale(double scale) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  const bool fits =
      scale >= std::numeric_limits<float>::min() && scale <= std::numeric_limits<float>::max();
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("the loss scale is ", scale, ", not a positive finite fp32 number"));
  }
  loss_scale_ = scale;
  return absl::OkStatus();
}

absl::Status RuntimeImpl::Step(Stream* caller) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!micro_steps_[i].has_gradient || micro_steps_[i].meant > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("matrix '", specs_[i].name,
                     "': its last job said that more gradients follow in this step"));
  }
  const std::int64_t step = executor_->step();
  recorder_->StepCalled(step, device_.clock().Now());
  HostTimer timer(*recorder_, device_.clock(), step);
  WEFT_RETURN_IF_ERROR(MakeRoomForStep(timer));
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (open_jobs_[i] != nullptr) continue;
    const MicroSteps& micro_steps = micro_steps_[i];
    missing.push_back(WhatIsMissing(specs_[i].name, micro_steps));
    // Every rank takes part in every collective: this one contributes zeros.
    const auto matrix = static_cast<MatrixId>(i);
    if (!micro_steps.has_gradient && !executor_->ReducesEachPass(matrix)) {
      WEFT_RETURN_IF_ERROR(executor_->TakeGradient(matrix, nullptr, nullptr));
    }
    const bool partly =
        micro_steps.has_gradient && options_.missing_gradient != MissingGradient::kError;
    ballots_[i].gradient = partly ? Ballot::Gradient::kPresent : Ballot::Gradient::kNone;
    Announce(matrix);
  }
  micro_steps_ = MicroStepsOf(plan_);
  pass_ = 0;
  verdict_->Set(step, ballots_, loss_scale_);
  for (const std::int32_t use : passes_->Close()) executor_->Skip(use);
  executor_->Close(caller);
  // Owned weights of the first layers are on their way before they are needed.
  if (executor_->MayIssue()) executor_->IssueReady();
  closed_jobs_ = std::exchange(open_jobs_, std::vector<std::shared_ptr<JobState>>(specs_.size()));
  if (!missing.empty() && options_.missing_gradient == MissingGradient::kError) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, ": no gradient on rank ", transport_.rank(), " for matrix ",
                     absl::StrJoin(missing, ", "), "; the step changes nothing"));
  }
  return absl::OkStatus();
}

absl::Status RuntimeImpl::Progress() {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  HostTimer timer(*recorder_, device_.clock(), executor_->step());
  if (executor_->MayIssue()) executor_->IssueReady();
  return executor_->failure();
}

absl::StatusOr<const LayerMatrices*> RuntimeImpl::Layer(int layer) const {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) {
    return absl::NotFoundError(absl::StrCat("no matrix belongs to layer ", layer));
  }
  return &found->second;
}

absl::Status RuntimeImpl::NeedOwned(int layer, Stream* stream) {
  if (!passes_->Uses(layer)) return absl::OkStatus();
  HostTimer timer(*recorder_, device_.clock(), executor_->step());
  WEFT_RETURN_IF_ERROR(MakeRoomForStep(timer));
  WEFT_ASSIGN_OR_RETURN(const Passes::Need need, passes_->Begin(layer));
  if (need.released >= 0) executor_->Release(need.released, stream);
  for (const std::int32_t use : need.skipped) executor_->Skip(use);
  const Nanos begin = device_.clock().Now();
  absl::Status status = executor_->Need(need.use, stream);
  if (stream == nullptr) timer.Blocked(device_.clock().Now() - begin);
  if (status.ok()) passes_->Grant(need.use);
  return status;
}

absl::Status RuntimeImpl::ParameterNeeded(int layer, Stream& stream) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  WEFT_ASSIGN_OR_RETURN(const LayerMatrices* matrices, Layer(layer));
  const base::Range range(kParameterNeeded, layer);
  auto span = std::make_shared<std::pair<Nanos, Nanos>>();
  stream.RecordTime(&span->first);
  absl::Status needed = NeedOwned(layer, &stream);
  if (needed.ok() && executor_->step() > executor_->first_step()) {
    executor_->WaitDelivered(matrices->delivered_by, stream);
  }
  stream.RecordTime(&span->second);
  // What is needed now is what the last step has left; the first step's first pass is its own.
  stream.EnqueueAlways(
      [span, recorder = recorder_, step = std::max(executor_->step() - 1, executor_->first_step())](
          const absl::Status&) { recorder->AddWait(step, span->first, span->second); });
  return needed;
}

absl::Status RuntimeImpl::ParameterReleased(int layer, Stream* stream) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  WEFT_RETURN_IF_ERROR(Layer(layer).status());
  if (!passes_->Uses(layer)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::int32_t use, passes_->End(layer));
  HostTimer timer(*recorder_, device_.clock(), executor_->step());
  executor_->Release(use, stream);
  return executor_->failure();
}

absl::StatusOr<const void*> RuntimeImpl::Parameter(MatrixId matrix) const {
  if (memory_ == nullptr) return absl::FailedPreconditionError("Commit() has not been called");
  if (matrix < 0 || matrix >= static_cast<MatrixId>(specs_.size())) {
    return absl::NotFoundError(absl::StrCat("no matrix has the id ", matrix));
  }
  const bool empty = specs_[matrix].rows * specs_[matrix].cols == 0;
  return empty ? nullptr : memory_->slot(matrix, Slot::kWeight);
}

absl::Status RuntimeImpl::WaitForLayer(int layer) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  WEFT_ASSIGN_OR_RETURN(const LayerMatrices* matrices, Layer(layer));
  const base::Range range(kWaitForLayer, layer);
  WEFT_RETURN_IF_ERROR(NeedOwned(layer, nullptr));
  if (executor_->step() == executor_->first_step()) return absl::OkStatus();
  for (const MatrixId matrix : matrices->delivered) {
    JobState& job = *closed_jobs_[matrix];
    const auto wait = [&]() -> std::optional<absl::Status> {
      const absl::Status status = job.Wait(Stage::kDelivered, options_.deadline);
      if (!job.Done(Stage::kDelivered)) return std::nullopt;
      return status;
    };
    WEFT_RETURN_IF_ERROR(
        executor_->Await([&] { return absl::StrCat("matrix '", job.matrix(), "'"); }, wait));
  }
  return absl::OkStatus();
}

absl::Status RuntimeImpl::WaitForStep() {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  if (executor_->step() == executor_->first_step()) return absl::OkStatus();
  return executor_->WaitForStep(executor_->step() - 1);
}

absl::StatusOr<absl::Span<float>> RuntimeImpl::State(MatrixId matrix) {
  if (memory_ == nullptr) return absl::FailedPreconditionError("Commit() has not been called");
  if (matrix < 0 || matrix >= static_cast<MatrixId>(specs_.size())) {
    return absl::NotFoundError(absl::StrCat("no matrix has the id ", matrix));
  }
  return memory_->state(matrix);
}

absl::StatusOr<StepMetrics> RuntimeImpl::Metrics() {
  const std::optional<StepMetrics> metrics = recorder_->LastComplete();
  if (!metrics.has_value()) return absl::FailedPreconditionError("no step is complete yet");
  return *metrics;
}

absl::StatusOr<std::vector<StepMetrics>> RuntimeImpl::MetricsOfAllRanks() {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  WEFT_RETURN_IF_ERROR(WaitForStep());
  WEFT_RETURN_IF_ERROR(Settle());
  WEFT_ASSIGN_OR_RETURN(StepMetrics own, Metrics());
  own.step_called += clock_offset_;
  own.last_delivered += clock_offset_;
  // As bit patterns, so that one exchange carries integers and doubles alike.
  static_assert(sizeof(StepMetrics) % sizeof(std::int64_t) == 0 &&
                std::is_trivially_copyable_v<StepMetrics>);
  constexpr std::size_t kWords = sizeof(StepMetrics) / sizeof(std::int64_t);
  const auto words = std::bit_cast<std::array<std::int64_t, kWords>>(own);
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> all,
                        communicators_->ExchangeNumbers({words.begin(), words.end()}, "metrics"));
  std::vector<StepMetrics> metrics;
  for (int rank = 0; rank < transport_.size(); ++rank) {
    std::array<std::int64_t, kWords> theirs;
    std::copy_n(all.begin() + rank * kWords, kWords, theirs.begin());
    metrics.push_back(std::bit_cast<StepMetrics>(theirs));
  }
  return metrics;
}

std::vector<MatrixCounters> RuntimeImpl::Counters() const {
  return executor_ == nullptr ? std::vector<MatrixCounters>{} : executor_->Counters();
}

std::vector<std::string> RuntimeImpl::WithoutGradient(std::int64_t steps) const {
  std::vector<std::string> names;
  if (executor_ == nullptr) return names;
  const std::int64_t complete = executor_->completed_steps();
  if (complete < steps) return names;
  for (const MatrixCounters& counters : executor_->Counters()) {
    if (counters.last_gradient_step < complete - steps) names.push_back(counters.name);
  }
  return names;
}

absl::Status RuntimeImpl::WriteTrace(const std::string& path) {
  if (trace_ == nullptr) {
    return absl::FailedPreconditionError("tracing was not asked for in the runtime's options");
  }
  WEFT_RETURN_IF_ERROR(CheckRunning());
  // The outcome of the step does not matter here, only that it is over.
  WEFT_RETURN_IF_ERROR(Settle());
  WEFT_ASSIGN_OR_RETURN(std::vector<std::int64_t> firsts,
                        communicators_->ExchangeNumbers({trace_->First()}, "trace"));
  std::erase(firsts, 0);
  const Nanos origin = firsts.empty() ? 0 : *std::min_element(firsts.begin(), firsts.end());
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> events,
                        communicators_->GatherText(trace_->ToJson(plan_, origin), "trace"));
  absl::Status written;
  if (transport_.rank() == 0) {
    const std::string file = TraceFile(events);
    written = WriteFileAtomically(
        path, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(file.data()), file.size()));
  }
  return communicators_->Agree(written, "trace");
}

void RuntimeImpl::Shutdown() {
  if (executor_ == nullptr) return;
  bool open = false;
  for (std::size_t i = 0; i < open_jobs_.size(); ++i) {
    // A part that is reduced by itself is under way without a job.
    open |= open_jobs_[i] != nullptr || (micro_steps_[i].meant > 0 && micro_steps_[i].done > 0);
  }
  if (open) {
    // Peers may never send what this step would still wait for.
    (void)executor_->Fail(absl::CancelledError(absl::StrCat(
        "rank ", transport_.rank(), " ended its runtime with step ", executor_->step(), " open")));
  } else if (executor_->failure().ok() && executor_->step() > executor_->first_step()) {
    (void)executor_->WaitForStep(executor_->step() - 1);
  }
  if (executor_->failure().ok() && !plan_.uses.empty()) {
    // Peers may be waiting for weights that are fetched ahead: all ranks see to those of the first
    // layers. What one rank alone has asked for ends with its peers, or at the deadline.
    executor_->IssueReady();
    executor_->Drain();
  }
  const absl::Status ended = executor_->failure().ok()
                                 ? absl::CancelledError("the runtime was destroyed")
                                 : executor_->failure();
  executor_.reset();
  for (const auto& jobs : {open_jobs_, closed_jobs_}) {
    for (const auto& job : jobs) {
      if (job != nullptr) job->FailOpenStages(ended);
    }
  }
}

}  // namespace runtime

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const RuntimeOptions& options,
                                                         Device& device, Transport& transport) {
  WEFT_RETURN_IF_ERROR(runtime::CheckOptions(options));
  if (options.topology.grid.size() != transport.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology: its grid of ", options.topology.grid.nodes, " x ",
                     options.topology.grid.ranks_per_node, " is not the transport's ",
                     transport.size(), " ranks"));
  }
  return std::make_unique<runtime::RuntimeImpl>(options, device, transport);
}

}  // namespace weft
