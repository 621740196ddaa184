// `weft run`: real steps on a model's matrices.
#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/weft/commands.h"
#include "tools/weft/file_values.h"
#include "tools/weft/json_file.h"
#include "tools/weft/launcher.h"
#include "tools/weft/output.h"
#include "tools/weft/progress.h"
#include "tools/weft/rank_run.h"
#include "tools/weft/ranks.h"
#include "tools/weft/report.h"
#include "tools/weft/session.h"
#include "tools/weft/status_macros.h"
#include "tools/weft/verify.h"

namespace weft::tool {
namespace {

absl::Status RunLocal(const Session& session, RunReport& report) {
  Progress progress("steps", session.options.steps);
  std::vector<RunReport> reports(session.plan.topology.grid.size());
  absl::Status status = RunAsThreads(session.settings.runtime.topology,
                                     session.settings.runtime.deadline, [&](Transport& transport) {
                                       return RunRank(session, transport, reports[transport.rank()],
                                                      [&](int step) { progress.Advance(step); });
                                     });
  report = std::move(reports[0]);
  return status;
}

absl::Status RunOneOfSeveral(const Session& session, Transport& transport, RunReport& report) {
  std::optional<Progress> progress;
  if (transport.rank() == 0) progress.emplace("steps", session.options.steps);
  return RunRank(session, transport, report, [&](int step) { progress->Advance(step); });
}

// The updated tensors that hold values which are not finite.
absl::StatusOr<std::vector<NotFinite>> FindNotFinite(const Session& session,
                                                     const RunReport& report) {
  std::vector<NotFinite> found;
  for (std::size_t i = 0; i < report.not_finite.size(); ++i) {
    if (report.not_finite[i] == 0) continue;
    const ModelTensor& tensor = session.model.tensors[session.routing.matrices[i].tensor];
    NotFinite one{tensor.name, report.not_finite[i], 0};
    if (tensor.file != nullptr) {
      WEFT_ASSIGN_OR_RETURN(const ValueCounts counts, CountValues(*tensor.file, *tensor.entry));
      one.in_model = counts.not_finite;
    }
    found.push_back(std::move(one));
  }
  return found;
}

// Names a few; "" where there is nothing to say.
std::string NotFiniteText(const std::vector<NotFinite>& tensors) {
  constexpr std::size_t kFew = 3;
  if (tensors.empty()) return "";
  std::string text = absl::StrCat("values that are not finite in ", tensors.size(),
                                  tensors.size() == 1 ? " tensor: " : " tensors: ");
  for (std::size_t i = 0; i < std::min(kFew, tensors.size()); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", Quoted(tensors[i].name), " has ", tensors[i].count);
    if (tensors[i].in_model > 0) {
      absl::StrAppend(&text, " (", tensors[i].in_model, " of them in the model)");
    }
  }
  if (tensors.size() > kFew) absl::StrAppend(&text, ", and ", tensors.size() - kFew, " more");
  return text;
}

// What rank 0 does with the results.
int Conclude(const Session& session, const RunReport& report) {
  const Options& options = session.options;
  const auto fail = [&](const absl::Status& status) {
    return Complain(std::string(status.message()), kFailed, options.error_fd);
  };
  const std::string unwritten =
      options.out.empty() ? "" : absl::StrCat("; ", options.out, " is not written");
  const auto not_finite = FindNotFinite(session, report);
  if (!not_finite.ok()) return fail(not_finite.status());
  std::optional<VerifyReport> verify;
  if (options.verify) {
    auto verified = Verify(session, report);
    if (!verified.ok()) return fail(verified.status());
    verify = *std::move(verified);
  }
  if (options.json) {
    PrintReportJson(session, report, *not_finite, verify, std::cout);
  } else {
    PrintReport(session, report, verify, std::cout);
  }
  std::cout.flush();
  if (std::any_of(not_finite->begin(), not_finite->end(),
                  [](const NotFinite& tensor) { return tensor.in_model == 0; })) {
    return Complain(NotFiniteText(*not_finite) + unwritten, kFailed, options.error_fd);
  }
  if (!not_finite->empty()) Complain(NotFiniteText(*not_finite), 0);
  if (verify && !verify->ok) {
    int beyond = 0;
    for (const MatrixCheck& check : verify->matrices) beyond += check.ok ? 0 : 1;
    return Complain(
        absl::StrCat(beyond, " of ", verify->matrices.size(),
                     " matrices differ from the reference beyond what is allowed", unwritten),
        kFailed, options.error_fd);
  }
  if (!options.out.empty()) {
    const absl::Status status = WriteOutput(session, report);
    if (!status.ok()) return fail(status);
  }
  return std::cout ? 0 : Complain("cannot write to stdout", kFailed, options.error_fd);
}

}  // namespace

int RunCommand(const Options& options, const std::vector<std::string>& arguments) {
  const auto session = PrepareRun(options);
  if (!session.ok()) {
    return Complain(std::string(session.status().message()), kBadInput, options.error_fd);
  }
  const bool several = options.transport == "gloo";
  WarnOfLinks(options, session->plan.topology);
  if (several && options.rank < 0) {
    const auto outcome = LaunchRanks(arguments, session->plan.topology.grid.size());
    if (!outcome.ok()) return Complain(std::string(outcome.status().message()), kFailed);
    return outcome->exit_code == 0 ? 0 : Complain(outcome->error, outcome->exit_code);
  }
  RunReport report;
  absl::Status status;
  if (several) {
    const auto transport = JoinOthers(session->options);
    if (!transport.ok()) {
      return Complain(std::string(transport.status().message()),
                      IsBadStore(transport.status()) ? kBadInput : kFailed, options.error_fd);
    }
    status = RunOneOfSeveral(*session, **transport, report);
  } else {
    status = RunLocal(*session, report);
  }
  if (!status.ok()) {
    return Complain(std::string(status.message()), kFailed, options.error_fd);
  }
  return options.rank <= 0 ? Conclude(*session, report) : 0;
}

}  // namespace weft::tool
