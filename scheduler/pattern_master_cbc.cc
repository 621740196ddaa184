// The master problem with CBC.
#include <algorithm>
#include <cmath>
#include <coin/CbcHeuristic.hpp>
#include <coin/CbcHeuristicDiveCoefficient.hpp>
#include <coin/CbcHeuristicFPump.hpp>
#include <coin/CbcHeuristicRINS.hpp>
#include <coin/CbcModel.hpp>
#include <coin/CglGomory.hpp>
#include <coin/CglMixedIntegerRounding2.hpp>
#include <coin/CoinPackedVector.hpp>
#include <coin/OsiClpSolverInterface.hpp>
#include <limits>

#include "scheduler/pattern_master.h"

namespace weft::scheduler {
namespace {

class CbcMaster final : public PatternMaster {
 public:
  explicit CbcMaster(const MasterInput& input) : input_(input) {
    lp_.messageHandler()->setLogLevel(0);
    lp_.getModelPtr()->setLogLevel(0);
    const double infinity = lp_.getInfinity();
    for (int size : input_.sizes) {
      lp_.addRow(CoinPackedVector(), size, input_.exactly ? size : infinity);
    }
    lp_.addRow(CoinPackedVector(), -infinity, input_.ranks);
    for (int cls = 0; cls < Classes(); ++cls) {
      const double one = 1;
      lp_.addCol(CoinPackedVector(1, &cls, &one), 0, input_.sizes[cls], input_.weights[cls]);
    }
  }

  void AddPattern(const Holding& pattern) override {
    std::vector<int> rows;
    std::vector<double> counts;
    for (const auto& [cls, count] : pattern) {
      rows.push_back(cls);
      counts.push_back(count);
    }
    rows.push_back(Classes());
    counts.push_back(1);
    lp_.addCol(CoinPackedVector(static_cast<int>(rows.size()), rows.data(), counts.data()), 0,
               input_.ranks, 0);
    patterns_.push_back(pattern);
  }

  Relaxation SolveRelaxation() override {
    if (solved_before_) {
      lp_.resolve();
    } else {
      lp_.initialSolve();
    }
    solved_before_ = true;
    Relaxation result;
    result.solved = lp_.isProvenOptimal();
    if (!result.solved) return result;
    result.objective = lp_.getObjValue();
    const double* duals = lp_.getRowPrice();
    result.class_values.assign(duals, duals + Classes());
    for (int cls = 0; cls < Classes(); ++cls) {
      double& value = result.class_values[cls];
      value = std::min(value, input_.weights[cls]);
      if (!input_.exactly) value = std::max(value, 0.0);
    }
    return result;
  }

  Result Solve(const std::vector<int>& start, int most_nodes, double seconds) override {
    OsiClpSolverInterface solver(lp_);
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      solver.setInteger(Classes() + static_cast<int>(p));
    }
    CbcModel model(solver);
    Configure(model, most_nodes, seconds);
    std::vector<double> values = Values(start);
    model.setBestSolution(values.data(), static_cast<int>(values.size()), Objective(values));
    model.branchAndBound();

    Result result;
    if (const double* best = model.bestSolution()) values.assign(best, best + values.size());
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      result.uses.push_back(static_cast<int>(std::lround(values[Classes() + p])));
    }
    values = Values(result.uses);
    result.objective = Objective(values);
    result.optimal = model.isProvenOptimal();
    result.out_of_time = model.isSecondsLimitReached();
    return result;
  }

 private:
  int Classes() const { return static_cast<int>(input_.sizes.size()); }

  static void Configure(CbcModel& model, int most_nodes, double seconds) {
    model.setLogLevel(0);
    model.messageHandler()->setLogLevel(0);
    model.solver()->messageHandler()->setLogLevel(0);
    model.setMaximumNodes(most_nodes);
    model.setMaximumSeconds(seconds);
    model.setUseElapsedTime(true);
    // Weights are such that one matrix left over counts more.
    model.setAllowableGap(1e-5);
    CglGomory gomory;
    model.addCutGenerator(&gomory, -5, "Gomory");
    CglMixedIntegerRounding2 rounding_cuts;
    model.addCutGenerator(&rounding_cuts, -5, "MixedIntegerRounding2");
    CbcRounding rounding(model);
    model.addHeuristic(&rounding, "rounding");
    CbcHeuristicFPump pump(model);
    pump.setMaximumPasses(30);
    model.addHeuristic(&pump, "feasibility pump");
    CbcHeuristicDiveCoefficient dive(model);
    model.addHeuristic(&dive, "dive");
    CbcHeuristicRINS rins(model);
    model.addHeuristic(&rins, "RINS");
  }

  // Left over first, as columns are; then the uses.
  std::vector<double> Values(const std::vector<int>& uses) const {
    std::vector<double> left(input_.sizes.begin(), input_.sizes.end());
    for (std::size_t p = 0; p < uses.size(); ++p) {
      for (const auto& [cls, count] : patterns_[p]) left[cls] -= count * uses[p];
    }
    for (double& value : left) value = std::max(value, 0.0);
    left.insert(left.end(), uses.begin(), uses.end());
    left.resize(Classes() + patterns_.size(), 0);
    return left;
  }

  double Objective(const std::vector<double>& values) const {
    double sum = 0;
    for (int cls = 0; cls < Classes(); ++cls) sum += input_.weights[cls] * values[cls];
    return sum;
  }

  const MasterInput input_;
  OsiClpSolverInterface lp_;
  std::vector<Holding> patterns_;
  bool solved_before_ = false;
};

}  // namespace

bool PatternMaster::Available() { return true; }

std::unique_ptr<PatternMaster> PatternMaster::Create(const MasterInput& input) {
  return std::make_unique<CbcMaster>(input);
}

}  // namespace weft::scheduler
