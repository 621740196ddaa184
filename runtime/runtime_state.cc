// What leaves and enters a runtime between steps.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/runtime_impl.h"

namespace weft::runtime {

absl::Status RuntimeImpl::CheckBetweenSteps() const {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (open_jobs_[i] == nullptr && micro_steps_[i].done == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat("matrix '", specs_[i].name,
                                                      "' has a gradient in step ",
                                                      executor_->step(), ", which is not closed"));
  }
  return absl::OkStatus();
}

absl::Status RuntimeImpl::CheckUnused() const {
  WEFT_RETURN_IF_ERROR(CheckBetweenSteps());
  if (executor_->unused()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this runtime has been used since Commit(): a new one can go on from a checkpoint");
}

absl::Status RuntimeImpl::Settle() {
  (void)WaitForStep();
  WEFT_RETURN_IF_ERROR(executor_->failure());
  // Owned weights that are fetched ahead travel on the communicators of exchanges, which take what
  // is issued in its order. Step() has them set out where the step before was over by then, which
  // differs from rank to rank.
  if (!plan_.uses.empty()) executor_->IssueReady();
  return executor_->failure();
}

absl::StatusOr<Description> RuntimeImpl::DescribeRun(Checkpoint& checkpoint) {
  Description description = DescribeModel(specs_);
  description.steps = executor_->step();
  description.loss_scale = loss_scale_;
  const std::vector<MatrixCounters> counters = executor_->Counters();
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    MatrixRecord& record = description.matrices[i];
    record.lr = ballots_[i].lr;
    record.weight_decay = ballots_[i].weight_decay;
    record.integers[kLastGradientStep] = counters[i].last_gradient_step;
  }
  return checkpoint.Complete(std::move(description));
}

Checkpoint RuntimeImpl::MakeCheckpoint() {
  return Checkpoint({device_, plan_, specs_, *memory_, *communicators_, transport_.rank()});
}

absl::Status RuntimeImpl::Save(const std::string& folder, const SaveOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  WEFT_RETURN_IF_ERROR(Settle());
  WEFT_RETURN_IF_ERROR(communicators_->Agree(CheckBetweenSteps(), "save"));
  Checkpoint checkpoint = MakeCheckpoint();
  WEFT_ASSIGN_OR_RETURN(const Description description, DescribeRun(checkpoint));
  return checkpoint.Save(folder, options, description);
}

absl::StatusOr<ExportedState> RuntimeImpl::ExportState(const ExportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  Checkpoint checkpoint = MakeCheckpoint();
  if (!options.with_data) return checkpoint.Export(options, nullptr);
  WEFT_RETURN_IF_ERROR(Settle());
  WEFT_RETURN_IF_ERROR(communicators_->Agree(CheckBetweenSteps(), "export"));
  WEFT_ASSIGN_OR_RETURN(const Description description, DescribeRun(checkpoint));
  absl::StatusOr<ExportedState> state = checkpoint.Export(options, &description);
  WEFT_RETURN_IF_ERROR(communicators_->Agree(state.status(), "export"));
  return state;
}

absl::Status RuntimeImpl::Load(const std::string& folder, const LoadOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  return TakeFrom(OpenCheckpoint(folder), options);
}

absl::Status RuntimeImpl::ImportState(const ExportedState& state, const LoadOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckRunning());
  return TakeFrom(OpenExported(state), options);
}

// Who finds nothing starts anew, and saves over what is there: where only some ranks find nothing,
// they do not see it. Collective.
absl::Status RuntimeImpl::LookTogether(absl::Status& opened) {
  const bool missing = absl::IsNotFound(opened);
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> all,
                        communicators_->ExchangeNumbers({missing ? 1 : 0}, "load"));
  const bool everywhere =
      std::all_of(all.begin(), all.end(), [](std::int64_t one) { return one == 1; });
  if (missing && !everywhere) {
    opened = absl::FailedPreconditionError(
        absl::StrCat(opened.message(), ", where other ranks see one: the folder must be one that ",
                     "all ranks share"));
  }
  return absl::OkStatus();
}

absl::Status RuntimeImpl::TakeFrom(absl::StatusOr<std::unique_ptr<StateSource>> source,
                                   const LoadOptions& options) {
  if (!executor_->unused()) WEFT_RETURN_IF_ERROR(Settle());
  Checkpoint checkpoint = MakeCheckpoint();
  std::vector<std::string> warnings;
  absl::Status status = CheckUnused();
  absl::Status opened = source.status();
  WEFT_RETURN_IF_ERROR(LookTogether(opened));
  status.Update(opened);
  if (status.ok()) status = checkpoint.Check(**source, options, warnings);
  WEFT_RETURN_IF_ERROR(communicators_->Agree(status, "load"));
  const std::string whole = absl::StrCat((*source)->identity(), static_cast<int>(options.weights),
                                         options.accept_other_options);
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> hashes,
                        communicators_->ExchangeNumbers(
                            {static_cast<std::int64_t>(std::hash<std::string>{}(whole))}, "load"));
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " loads another checkpoint, or with other options, than rank 0"));
  }
  for (const std::string& warning : warnings) {
    if (transport_.rank() == 0) base::Log(LogLevel::kWarning, warning);
  }
  status = communicators_->Agree(checkpoint.Take(**source, options), "load");
  // Parts of it may have come.
  if (!status.ok()) return executor_->Fail(status);
  GoOnFrom((*source)->description());
  return absl::OkStatus();
}

void RuntimeImpl::GoOnFrom(const Description& description) {
  std::map<std::string, const MatrixRecord*> records;
  for (const MatrixRecord& record : description.matrices) records[record.name] = &record;
  std::vector<std::int64_t> last_gradient_steps;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const MatrixRecord& record = *records.at(specs_[i].name);
    const auto found = record.integers.find(kLastGradientStep);
    last_gradient_steps.push_back(found == record.integers.end() ? -1 : found->second);
    // Other rates in the registration are meant: they have been changed since.
    if (record.registered_lr == DefaultLr(specs_[i].rule)) ballots_[i].lr = record.lr;
    if (record.registered_weight_decay == DefaultWeightDecay(specs_[i].rule)) {
      ballots_[i].weight_decay = record.weight_decay;
    }
  }
  loss_scale_ = description.loss_scale;
  executor_->StartAt(description.steps, last_gradient_steps);
}

}  // namespace weft::runtime
