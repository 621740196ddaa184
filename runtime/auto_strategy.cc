#include "runtime/auto_strategy.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/owners.h"
#include "runtime/registration.h"
#include "weft/auto_strategy.h"
#include "weft/strategy_switch.h"
#include "weft/work.h"

namespace weft::runtime {
namespace {

struct Choice {
  StrategyChoice choice;
  std::optional<FoundOwners> found;  // of the strategy that was chosen
};

absl::StatusOr<Choice> Choose(const std::vector<MatrixSpec>& specs, const RuntimeOptions& options,
                              const Clock& clock) {
  WEFT_ASSIGN_OR_RETURN(const auto work, OwnedWorkOf(specs));
  std::map<Strategy, std::optional<FoundOwners>> found;
  const auto make = [&](Strategy strategy) -> absl::StatusOr<Plan> {
    const RuntimeOptions asked = OptionsUnder(strategy, options);
    WEFT_ASSIGN_OR_RETURN(PlanRequest request, MakePlanRequest(specs, asked));
    WEFT_ASSIGN_OR_RETURN(found[strategy], FindOwners(request, asked, clock));
    WEFT_ASSIGN_OR_RETURN(Plan plan, BuildWith(found[strategy], std::move(request)));
    WEFT_RETURN_IF_ERROR(CheckStateCap(plan, options.ownership.state_bytes_cap));
    return plan;
  };
  const CostModel model = ModelOf(options);
  WEFT_ASSIGN_OR_RETURN(StrategyChoice choice,
                        ChooseAmong(AllStrategies(), make, model,
                                    options.auto_strategy.value_or(TrainerModel{}), work));
  std::optional<FoundOwners> owners = std::move(found[choice.strategy]);
  return Choice{std::move(choice), std::move(owners)};
}

// With figures as they are to the last bit, infinite ones too.
std::string Pack(const StrategyReport& report) {
  nlohmann::json packed = {{"strategy", static_cast<int>(report.strategy)},
                           {"reason", report.reason}};
  for (const StrategyAlternative& each : report.alternatives) {
    packed["alternatives"].push_back({static_cast<int>(each.strategy), each.infeasible,
                                      each.step_seconds, each.exposed_seconds, each.peak_bytes,
                                      each.bound, each.fallbacks});
  }
  std::string text;
  nlohmann::json::to_msgpack(packed, text);
  return text;
}

absl::StatusOr<StrategyReport> Unpack(const std::string& text) {
  try {
    const nlohmann::json packed = nlohmann::json::from_msgpack(text);
    StrategyReport report;
    report.strategy = static_cast<Strategy>(packed.at("strategy").get<int>());
    packed.at("reason").get_to(report.reason);
    for (const nlohmann::json& each : packed.at("alternatives")) {
      StrategyAlternative& alternative = report.alternatives.emplace_back();
      alternative.strategy = static_cast<Strategy>(each.at(0).get<int>());
      each.at(1).get_to(alternative.infeasible);
      each.at(2).get_to(alternative.step_seconds);
      each.at(3).get_to(alternative.exposed_seconds);
      each.at(4).get_to(alternative.peak_bytes);
      each.at(5).get_to(alternative.bound);
      each.at(6).get_to(alternative.fallbacks);
    }
    return report;
  } catch (const nlohmann::json::exception&) {
    return absl::InternalError(
        "rank 0 sent its strategy in another form; are they the same build?");
  }
}

}  // namespace

RuntimeOptions OptionsUnder(Strategy strategy, const RuntimeOptions& options) {
  RuntimeOptions asked = options;
  asked.strategy = strategy;
  asked.auto_strategy.reset();
  if (strategy != Strategy::kOwner) asked.ownership.owners.clear();
  return asked;
}

absl::StatusOr<StrategyChoice> ChooseShortestStep(const std::vector<MatrixSpec>& specs,
                                                  const RuntimeOptions& options,
                                                  const Clock& clock) {
  WEFT_ASSIGN_OR_RETURN(Choice chosen, Choose(specs, options, clock));
  return std::move(chosen.choice);
}

absl::StatusOr<Plan> PlanOfShortestStep(const std::vector<MatrixSpec>& specs,
                                        const RuntimeOptions& options, const Clock& clock, int rank,
                                        Communicators& communicators, StrategyReport& report) {
  absl::StatusOr<Choice> chosen = Choice{};
  if (rank == 0) chosen = Choose(specs, options, clock);
  WEFT_RETURN_IF_ERROR(communicators.Agree(chosen.status(), "strategy"));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      communicators.ExchangeText(rank == 0 ? Pack(chosen->choice) : "", "strategy"));
  absl::StatusOr<StrategyReport> said = Unpack(texts[0]);
  WEFT_RETURN_IF_ERROR(communicators.Agree(said.status(), "strategy"));
  report = *std::move(said);
  if (rank == 0) base::Log(LogLevel::kInfo, absl::StrCat("strategy auto: ", report.reason));
  const RuntimeOptions asked = OptionsUnder(report.strategy, options);
  WEFT_ASSIGN_OR_RETURN(PlanRequest request, MakePlanRequest(specs, asked));
  return BuildWithOwners(std::move(request), asked, clock, rank, &communicators, chosen->found);
}

}  // namespace weft::runtime

namespace weft {

absl::StatusOr<StrategyChoice> ChoiceFor(const std::vector<MatrixSpec>& matrices,
                                         const RuntimeOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<MatrixSpec> specs,
                        runtime::CheckRegistration(matrices, options));
  return runtime::ChooseShortestStep(specs, options, Clock::Steady());
}

absl::StatusOr<StrategySwitch> SwitchFor(const std::vector<MatrixSpec>& matrices,
                                         const RuntimeOptions& options, int most_nodes) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<MatrixSpec> specs,
                        runtime::CheckRegistration(matrices, options));
  WEFT_ASSIGN_OR_RETURN(const auto work, OwnedWorkOf(specs));
  const CostModel model = runtime::ModelOf(options);
  const auto make = [&](const Topology& topology, Strategy strategy) {
    RuntimeOptions asked = runtime::OptionsUnder(strategy, options);
    asked.topology = topology;
    asked.costs = std::make_shared<const CostModel>(model.On(topology));
    asked.owner_solver = OwnerSolver::kHeuristic;
    asked.ownership.owners.clear();
    std::vector<MatrixSpec> there = specs;
    for (MatrixSpec& spec : there) {
      if (topology.grid != options.topology.grid) spec.shard_rows.clear();
    }
    return PlanFor(there, asked);
  };
  return FindSwitch(model, most_nodes, make, options.auto_strategy.value_or(TrainerModel{}), work);
}

}  // namespace weft
