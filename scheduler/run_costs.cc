#include "scheduler/run_costs.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace weft::scheduler {

std::string NameOf(const AssignmentProblem& problem, int matrix) {
  return problem.names.empty() ? absl::StrCat("matrix number ", matrix)
                               : absl::StrCat("matrix '", problem.names[matrix], "'");
}

std::vector<int> ClassSizes(const AssignmentProblem& problem) {
  std::vector<int> sizes(problem.classes.size(), 0);
  for (int cls : problem.class_of) ++sizes[cls];
  return sizes;
}

double InterBytesCap(const AssignmentProblem& problem) {
  if (problem.inter_group_factor == 0) return std::numeric_limits<double>::infinity();
  double total = 0;
  for (int cls : problem.class_of) total += static_cast<double>(problem.classes[cls].inter_bytes);
  return total / problem.grid.ranks_per_node * problem.inter_group_factor;
}

RunCosts::RunCosts(const AssignmentProblem& problem) {
  const std::vector<int> sizes = ClassSizes(problem);
  for (std::size_t cls = 0; cls < sizes.size(); ++cls) {
    const std::vector<double>& batch = problem.classes[cls].batch_costs;
    std::vector<double> costs(sizes[cls] + 1, 0.0);
    std::vector<int> last(sizes[cls] + 1, 0);
    bool monotone = true;
    double per_matrix = std::numeric_limits<double>::infinity(), at_all = per_matrix;
    for (int count = 1; count <= sizes[cls]; ++count) {
      const int most = std::min(count, static_cast<int>(batch.size()));
      costs[count] = std::numeric_limits<double>::infinity();
      // Of equal costs the larger batch: fewer launches.
      for (int b = most; b >= 1; --b) {
        const double cost = costs[count - b] + batch[b - 1];
        if (cost < costs[count]) {
          costs[count] = cost;
          last[count] = b;
        }
      }
      monotone = monotone && costs[count] >= costs[count - 1];
      per_matrix = std::min(per_matrix, costs[count] / count);
      at_all = std::min(at_all, costs[count]);
    }
    costs_.push_back(std::move(costs));
    last_batch_.push_back(std::move(last));
    monotone_.push_back(monotone);
    per_matrix_.push_back(sizes[cls] == 0 ? 0 : per_matrix);
    at_all_.push_back(sizes[cls] == 0 ? 0 : at_all);
  }
}

double RunCosts::Of(const Holding& holding) const {
  double sum = 0;
  for (const auto& [cls, count] : holding) sum += Of(cls, count);
  return sum;
}

std::vector<int> RunCosts::Batches(int cls, int count) const {
  std::vector<int> sizes;
  for (; count > 0; count -= sizes.back()) sizes.push_back(last_batch_[cls][count]);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  return sizes;
}

double RunCosts::Mean(int ranks) const {
  double work = 0;
  for (int cls = 0; cls < classes(); ++cls) work += Of(cls, size(cls));
  return work / ranks;
}

double RunCosts::LowerBound(int ranks) const {
  const double dearest = at_all_.empty() ? 0 : *std::max_element(at_all_.begin(), at_all_.end());
  // The sum of a rank's costs and this one round differently.
  constexpr double kRounding = 1e-12;
  return std::max(Mean(ranks), dearest) * (1 - kRounding);
}

}  // namespace weft::scheduler
