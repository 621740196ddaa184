// Steps that refresh the same matrices are told once.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "weft/plan_evaluator.h"

namespace weft {

absl::StatusOr<CyclePrediction> EvaluateCycle(const Plan& plan, const CostModel& model,
                                              const TrainerModel& trainer,
                                              absl::Span<const std::optional<OwnedWork>> work) {
  struct Told {
    double step_seconds, exposed_seconds;
  };
  std::map<std::vector<bool>, Told> known;  // by which matrices refresh
  CyclePrediction cycle;
  const std::int64_t steps = std::min(CycleOf(plan), kMostEvaluatedSteps);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<bool> refresh;
    for (const PlanMatrix& matrix : plan.matrices) refresh.push_back(Refreshes(matrix, step));
    auto told = known.find(refresh);
    if (told == known.end()) {
      TrainerModel here = trainer;
      here.step = step;
      WEFT_ASSIGN_OR_RETURN(StepPrediction prediction, EvaluatePlan(plan, model, here, work));
      told =
          known.emplace(refresh, Told{prediction.step_seconds, prediction.exposed_seconds}).first;
      if (step == 0 || prediction.step_seconds > cycle.slowest.step_seconds) {
        cycle.slowest = std::move(prediction);
      }
    }
    cycle.step_seconds += told->second.step_seconds / static_cast<double>(steps);
    cycle.exposed_seconds += told->second.exposed_seconds / static_cast<double>(steps);
  }
  return cycle;
}

}  // namespace weft
