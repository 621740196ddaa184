// How far from the best possible makespan owners are: longest processing time first, local search
// and the mixed-integer program, for the models of bench/models. Seconds are informative; the rest
// is the same everywhere unless a row says that the time limit ended it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "scheduler/owner_assignment.h"
#include "tools/weft/model.h"
#include "tools/weft/table.h"
#include "weft/clock.h"
#include "weft/update.h"

namespace {

using weft::AssignmentReport;
using weft::scheduler::OwnerAssignment;
using weft::scheduler::SolverOptions;

constexpr int kMostBatch = 8;

struct Costs {
  bool batched = false;
  double tflops = 300;
  double launch_us = 100;
};

struct Row {
  int ranks = 0;
  std::size_t matrices = 0;
  AssignmentReport milp;
  double heuristic_seconds = 0;
  double milp_seconds = 0;
};

absl::StatusOr<weft::PlanRequest> RequestOf(const std::vector<weft::tool::ModelTensor>& tensors,
                                            const weft::ProcessGrid& grid, const Costs& costs) {
  weft::NewtonSchulzOptions newton_schulz;
  newton_schulz.operand_type = weft::DType::kBF16;
  weft::PlanRequest request;
  request.topology.grid = grid;
  std::map<double, int> tables;
  for (const weft::tool::ModelTensor& tensor : tensors) {
    weft::PlanMatrix matrix;
    matrix.name = tensor.name;
    matrix.rows = tensor.shape.at(0);
    matrix.cols = tensor.shape.at(1);
    matrix.dtype = weft::DType::kBF16;
    WEFT_ASSIGN_OR_RETURN(const weft::NewtonSchulzCost cost,
                          CostOf(newton_schulz, matrix.rows, matrix.cols));
    matrix.flops = cost.symmetric_flops;
    request.ownership.layers.push_back(tensor.layer);
    request.matrices.push_back(matrix);
    if (!costs.batched) continue;
    const auto [place, is_new] = tables.emplace(matrix.flops, static_cast<int>(tables.size()));
    if (is_new) {
      std::vector<double>& table = request.ownership.batch_costs.emplace_back();
      for (int b = 1; b <= kMostBatch; ++b) {
        table.push_back(costs.launch_us * 1e-6 + b * matrix.flops / (costs.tflops * 1e12));
      }
    }
    request.ownership.matrix_table.push_back(place->second);
  }
  return request;
}

absl::StatusOr<Row> Measure(const weft::PlanRequest& request, double limit) {
  const weft::Clock& clock = weft::Clock::Steady();
  Row row;
  row.ranks = request.topology.grid.size();
  row.matrices = request.matrices.size();
  SolverOptions options;
  options.milp = false;
  weft::Nanos begin = clock.Now();
  WEFT_RETURN_IF_ERROR(SolveOwners(request, options).status());
  row.heuristic_seconds = static_cast<double>(clock.Now() - begin) * 1e-9;
  options.milp = true;
  options.clock = &clock;
  options.limit = static_cast<weft::Nanos>(limit * 1e9);
  begin = clock.Now();
  WEFT_ASSIGN_OR_RETURN(const OwnerAssignment solved, SolveOwners(request, options));
  row.milp_seconds = static_cast<double>(clock.Now() - begin) * 1e-9;
  row.milp = solved.report;
  return row;
}

std::string Ratio(double value, double bound) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value / bound);
  return text;
}

std::vector<std::string> Cells(const std::string& model, const Row& row, double simple) {
  const AssignmentReport& report = row.milp;
  return {model,
          std::to_string(row.ranks),
          std::to_string(row.matrices),
          Ratio(report.longest_first, report.lower_bound),
          Ratio(report.local_search, report.lower_bound),
          Ratio(report.makespan, report.lower_bound),
          Ratio(report.lower_bound, simple),
          std::string(Name(report.taken)),
          std::to_string(report.targets),
          weft::tool::SecondsText(row.heuristic_seconds),
          weft::tool::SecondsText(row.milp_seconds) + (report.out_of_time ? " (limit)" : "")};
}

absl::Status Run(const std::string& folder, const Costs& costs, double limit) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  weft::tool::Table table({"model", "ranks", "matrices", "LPT", "local", "final", "bound", "<taken",
                           "targets", "LPT+local", "all"});
  for (const auto& file : files) {
    WEFT_ASSIGN_OR_RETURN(const weft::tool::Model model, weft::tool::LoadModel(file));
    for (const weft::ProcessGrid& grid :
         {weft::ProcessGrid{1, 8}, weft::ProcessGrid{4, 8}, weft::ProcessGrid{32, 8}}) {
      WEFT_ASSIGN_OR_RETURN(const weft::PlanRequest request, RequestOf(model.tensors, grid, costs));
      WEFT_ASSIGN_OR_RETURN(const Row row, Measure(request, limit));
      // The bound that needs no solver.
      SolverOptions heuristics;
      heuristics.milp = false;
      WEFT_ASSIGN_OR_RETURN(const OwnerAssignment simple, SolveOwners(request, heuristics));
      table.Add(Cells(file.stem(), row, simple.report.lower_bound));
    }
  }
  table.Print(std::cout);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder;
  Costs costs;
  double limit = 5;
  CLI::App app(
      "Makespans over the lower bound. bound: the proved one over max(mean load, dearest matrix).");
  app.add_option("models", folder, "Folder of shape manifests")->required();
  app.add_flag("--batched", costs.batched,
               "Seconds by a model of batches of 1 to 8: launch + b * FLOPs / rate");
  app.add_option("--tflops", costs.tflops, "Rate of the model of batches");
  app.add_option("--launch-us", costs.launch_us, "Launch time of the model of batches");
  app.add_option("--limit", limit, "Seconds for the mixed-integer program");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(folder, costs, limit);
  if (!status.ok()) {
    std::cerr << status.message() << "\n";
    return 1;
  }
  return 0;
}
