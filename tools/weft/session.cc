#include "tools/weft/session.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/weft/file_values.h"
#include "tools/weft/json_file.h"
#include "tools/weft/status_macros.h"
#include "tools/weft/table.h"
#include "weft/auto_strategy.h"
#include "weft/plan_cost.h"
#include "weft/safetensors.h"

namespace weft::tool {
namespace {

double ElementsOf(const MatrixSpec& spec) {
  return static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
}

// What --forward-ms and --backward-ms say, by matrix: a layer works in proportion to its elements.
TrainerModel TrainerOf(const Session& session) {
  double elements = 0;
  for (const MatrixSpec& spec : session.specs) elements += ElementsOf(spec);
  TrainerModel trainer;
  for (const MatrixSpec& spec : session.specs) {
    const double part = elements > 0 ? ElementsOf(spec) / elements : 0;
    trainer.forward_seconds.push_back(1e-3 * session.options.forward_ms * part);
    trainer.backward_seconds.push_back(1e-3 * session.options.backward_ms * part);
  }
  return trainer;
}

absl::Status ChooseAndPlan(Session& session) {
  RuntimeOptions& runtime = session.settings.runtime;
  runtime.auto_strategy = TrainerOf(session);
  WEFT_ASSIGN_OR_RETURN(session.choice, ChoiceFor(session.specs, runtime));
  if (session.options.switch_nodes > 0) {
    WEFT_ASSIGN_OR_RETURN(session.strategy_switch,
                          SwitchFor(session.specs, runtime, session.options.switch_nodes));
  }
  session.plan = std::move(session.choice->plan);
  return absl::OkStatus();
}

absl::Status RouteAndPlan(Session& session) {
  WEFT_ASSIGN_OR_RETURN(session.routing, RouteTensors(session.model, session.gradients,
                                                      session.options.adamw_patterns));
  if (session.routing.matrices.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(session.model.path, ": no tensor of it would be updated"));
  }
  session.specs = SpecsOf(session.model, session.routing, session.settings);
  RuntimeOptions& runtime = session.settings.runtime;
  WEFT_ASSIGN_OR_RETURN(session.costs, CostsFor(session.options, session.specs, runtime.topology));
  runtime.costs = session.costs.model;
  if (session.settings.choose_strategy) return ChooseAndPlan(session);
  WEFT_ASSIGN_OR_RETURN(session.plan, PlanFor(session.specs, runtime));
  return absl::OkStatus();
}

// All local ranks live on this machine; files are read piece by piece.
absl::Status CheckMemory(const Session& session) {
  const Plan& plan = session.plan;
  const int size = plan.topology.grid.size();
  double needed = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (session.options.rank >= 0 && rank != session.options.rank) continue;
    const RankCost cost = CostOfRank(plan, rank);
    needed += static_cast<double>(cost.state_bytes) + static_cast<double>(cost.buffer_bytes);
    for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
      needed +=
          static_cast<double>(SlotRows(plan, static_cast<std::int32_t>(i), Slot::kWeight, rank)) *
          static_cast<double>(plan.matrices[i].cols) *
          static_cast<double>(SizeOf(plan.matrices[i].dtype));
    }
  }
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > machine) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run needs ", BytesText(needed), " of memory, the machine has ", BytesText(machine)));
  }
  return absl::OkStatus();
}

// Values that the run would turn into infinities, or that are none: found before it begins.
absl::Status CheckValues(const Session& session) {
  for (const RoutedMatrix& matrix : session.routing.matrices) {
    const ModelTensor& tensor = session.model.tensors[matrix.tensor];
    // All other types fit.
    if (tensor.file == nullptr || FileFloatOf(tensor.dtype) != FileFloat::kF64) continue;
    WEFT_ASSIGN_OR_RETURN(const ValueCounts counts, CountValues(*tensor.file, *tensor.entry));
    if (counts.too_large == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(tensor.file->path(), ": tensor ",
                                                   Quoted(tensor.name), " has ", counts.too_large,
                                                   " values beyond fp32, which it is computed in"));
  }
  return session.gradients.CheckValues();
}

struct NamedFile {
  std::string role;
  std::string path;
};

// Writing one would destroy another, or one is given in another's place.
absl::Status CheckDistinct(const Session& session) {
  const Options& options = session.options;
  std::vector<NamedFile> files = {{"MODEL", options.model}};
  const bool several =
      session.model.files.size() != 1 || session.model.files.front()->path() != options.model;
  if (several) {
    for (const auto& file : session.model.files) files.push_back({"MODEL's file", file->path()});
  }
  const std::size_t inputs_of_model = files.size();
  for (const auto& [role, path] : {NamedFile{"--coefficients", options.coefficients},
                                   {"--topology", options.topology},
                                   {"--gradients", options.gradients},
                                   {"--trace", options.trace},
                                   {"--out", options.out}}) {
    const bool by_name = role == "--coefficients" && Coefficients::Named(path).ok();
    if (!path.empty() && !by_name) files.push_back({role, path});
  }
  for (std::size_t i = inputs_of_model; i < files.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      // The new weights may replace a file that holds nothing but the old ones.
      if (j == 0 && !several && files[i].role == "--out") continue;
      if (!SameFile(files[i].path, files[j].path)) continue;
      return absl::InvalidArgumentError(absl::StrCat(files[i].role, " ", files[i].path,
                                                     " is the same file as ", files[j].role, " ",
                                                     files[j].path));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool SameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  // Outputs need not exist yet.
  const auto left = std::filesystem::weakly_canonical(a, error);
  if (error) return false;
  const auto right = std::filesystem::weakly_canonical(b, error);
  return !error && left == right;
}

absl::StatusOr<Session> PreparePlan(const Options& options) {
  Session session;
  session.options = options;
  WEFT_ASSIGN_OR_RETURN(session.settings, SettingsOf(options));
  const int size = session.settings.runtime.topology.grid.size();
  if (options.plan_rank < -1 || options.plan_rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank ", options.plan_rank, " is not one of the ", size, " ranks"));
  }
  WEFT_ASSIGN_OR_RETURN(session.model, LoadModel(options.model));
  WEFT_RETURN_IF_ERROR(RouteAndPlan(session));
  return session;
}

absl::StatusOr<Session> PrepareRun(const Options& options) {
  Session session;
  session.options = options;
  WEFT_ASSIGN_OR_RETURN(session.settings, SettingsOf(options));
  WEFT_RETURN_IF_ERROR(CheckRankOptions(options, session.settings.runtime.topology));
  if (session.settings.layout == Layout::kOwned) {
    return absl::InvalidArgumentError(
        "--layout owned is for trainers whose layers ask for their weights; a run has none "
        "(weft plan shows its plan)");
  }
  session.settings.runtime.deadline = absl::Seconds(options.deadline);
  session.settings.runtime.trace = !options.trace.empty();
  WEFT_ASSIGN_OR_RETURN(session.model, LoadModel(options.model));
  WEFT_RETURN_IF_ERROR(CheckDistinct(session));
  if (options.gradients.empty()) {
    session.gradients = Gradients::Seeded(options.seed);
  } else {
    WEFT_ASSIGN_OR_RETURN(session.gradients, Gradients::FromFile(options.gradients, session.model));
  }
  WEFT_RETURN_IF_ERROR(RouteAndPlan(session));
  WEFT_RETURN_IF_ERROR(CheckMemory(session));
  // The launcher of this process, which gave it the descriptor, has read all values before.
  if (options.error_fd < 0) WEFT_RETURN_IF_ERROR(CheckValues(session));
  if (options.rank <= 0) {
    if (!options.out.empty()) WEFT_RETURN_IF_ERROR(CheckWritable(options.out));
    if (!options.trace.empty()) WEFT_RETURN_IF_ERROR(CheckWritable(options.trace));
  }
  return session;
}

}  // namespace weft::tool
