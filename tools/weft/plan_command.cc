// `weft plan`: what would run, without running it.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/weft/commands.h"
#include "tools/weft/names.h"
#include "tools/weft/session.h"
#include "tools/weft/table.h"
#include "tools/weft/topology_text.h"
#include "tools/weft/visible.h"
#include "tools/weft/warnings.h"
#include "weft/plan_cost.h"

namespace weft::tool {
namespace {

constexpr std::size_t kFewMatrices = 12;
constexpr int kFewRanks = 32;
// Of the table of ranks, behind FLOPs.
constexpr int kSecondsColumn = 5;

// What owners were balanced by.
std::string CostsText(const Session& session) {
  std::map<CostSource, int> tables;
  for (const CostSource source : session.costs.tables.table_source) ++tables[source];
  std::vector<std::string> parts;
  parts.reserve(tables.size());
  for (const auto& [source, count] : tables) {
    parts.push_back(absl::StrCat(count, " ", std::string(Name(source))));
  }
  return absl::StrCat(Visible(session.costs.model->Describe()),
                      "; shapes: ", parts.empty() ? "none" : absl::StrJoin(parts, ", "));
}

// How far the owners are from the best there is.
void PrintOwners(const AssignmentReport& report, std::ostream& out) {
  if (report.lower_bound == 0) return;
  out << "owners: " << std::string(Name(report.taken)) << ", makespan "
      << SecondsText(report.makespan) << ", bound " << SecondsText(report.lower_bound) << ", gap "
      << NumberText(100 * report.Gap()) << " %, LPT " << SecondsText(report.longest_first)
      << (report.out_of_time ? " (the time ended the program)" : "") << "\n";
}

void PrintHead(const Session& session, std::ostream& out) {
  const Plan& plan = session.plan;
  const ProcessGrid& grid = plan.topology.grid;
  std::int64_t elements = 0;
  for (const PlanMatrix& matrix : plan.matrices) elements += matrix.rows * matrix.cols;
  out << Visible(session.model.path) << ": " << session.model.tensors.size() << " tensors, "
      << plan.matrices.size() << " updated, " << NumberText(static_cast<double>(elements) * 1e-6)
      << " M elements\n";
  for (const auto& [reason, count] : session.routing.reasons) {
    out << "  " << count << "  " << Visible(reason) << "\n";
  }
  out << "world: " << grid.size() << " ranks = " << grid.nodes << " x " << grid.ranks_per_node
      << "\n";
  out << "intra: " << IntraText(plan.topology) << "\n";
  out << "inter: " << InterText(plan.topology) << "\n";
  if (plan.topology.root_complex_gigabytes_per_second > 0) {
    out << "root complexes: " << RootComplexText(plan.topology) << "\n";
  }
  out << "strategy: " << std::string(Name(plan.strategy))
      << ", layout: " << std::string(Name(session.settings.layout)) << ", " << plan.ops.size()
      << " ops\n";
  out << "costs: " << CostsText(session) << "\n";
  if (!session.costs.mismatch.empty()) {
    out << "warning: " << Visible(session.costs.mismatch) << "\n";
  }
  if (grid.size() > 1) PrintOwners(plan.owner_report, out);
  out << "\n";
}

// All strategies, the chosen one first.
void PrintChoice(const StrategyChoice& choice, std::ostream& out) {
  Table table({"strategy", "step", "exposed", "peak", "<critical path"});
  for (const StrategyAlternative& each : choice.alternatives) {
    const std::string name(Name(each.strategy));
    if (!each.infeasible.empty()) {
      table.Add({name, "-", "-", "-", "not feasible: " + each.infeasible});
      continue;
    }
    std::string bound = each.bound;
    if (each.fallbacks > 0) absl::StrAppend(&bound, "; ", each.fallbacks, " tensors fall back");
    table.Add({name, SecondsText(each.step_seconds), SecondsText(each.exposed_seconds),
               BytesText(static_cast<double>(each.peak_bytes)), bound});
  }
  table.Print(out);
  out << "chosen: " << choice.reason << "\n\n";
}

void PrintSwitch(const StrategySwitch& found, std::ostream& out) {
  const auto step = [](double seconds) {
    return std::isfinite(seconds) ? SecondsText(seconds) : std::string("-");
  };
  Table table({"nodes", "owner", "node_local", "<shorter"});
  for (const SwitchPoint& point : found.points) {
    const bool equal = point.owner_seconds == point.node_local_seconds;
    table.Add({absl::StrCat(point.nodes), step(point.owner_seconds), step(point.node_local_seconds),
               equal ? "equal" : std::string(Name(point.Shorter()))});
  }
  table.Print(out);
  out << "switch: " << found.reason << "\n\n";
}

void PrintRanks(const Session& session, bool all, std::ostream& out) {
  const Plan& plan = session.plan;
  const int size = plan.topology.grid.size();
  std::vector<std::string> header = {"rank",  "node",  "owns",  "compute", "of mean",
                                     "intra", "inter", "state", "buffers", "ops"};
  const std::vector<double> seconds = OwnerSeconds(plan, session.costs.tables);
  const bool timed = session.costs.model->measured();
  if (timed) header.insert(header.begin() + kSecondsColumn, {"time", "of mean"});
  const double mean_seconds =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(size);
  Table table(std::move(header));
  std::vector<RankCost> costs;
  double total = 0, most = 0;
  std::int64_t intra = 0, inter = 0;
  for (int rank = 0; rank < size; ++rank) {
    costs.push_back(CostOfRank(plan, rank));
    total += costs.back().flops;
    most = std::max(most, costs.back().flops);
    intra += costs.back().lane_bytes[static_cast<int>(Lane::kIntra)];
    inter += costs.back().lane_bytes[static_cast<int>(Lane::kInter)];
  }
  const double mean = total / size;
  for (int rank = 0; rank < size && (all || rank < kFewRanks); ++rank) {
    const RankCost& cost = costs[rank];
    std::size_t ops = 0;
    for (const auto& lane : plan.lanes[rank]) ops += lane.size();
    const auto bytes = [&](Lane lane) {
      return BytesText(static_cast<double>(cost.lane_bytes[static_cast<int>(lane)]));
    };
    std::vector<std::string> row = {absl::StrCat(rank),
                                    absl::StrCat(plan.topology.grid.node_of(rank)),
                                    absl::StrCat(cost.owned),
                                    FlopsText(cost.flops),
                                    mean > 0 ? NumberText(cost.flops / mean) : "-",
                                    bytes(Lane::kIntra),
                                    bytes(Lane::kInter),
                                    BytesText(static_cast<double>(cost.state_bytes)),
                                    BytesText(static_cast<double>(cost.buffer_bytes)),
                                    absl::StrCat(ops)};
    if (timed) {
      row.insert(row.begin() + kSecondsColumn,
                 {SecondsText(seconds[rank]),
                  mean_seconds > 0 ? NumberText(seconds[rank] / mean_seconds) : "-"});
    }
    table.Add(std::move(row));
  }
  table.Print(out);
  if (!all && size > kFewRanks) {
    out << "... and " << size - kFewRanks << " more ranks; --all shows them\n";
  }
  out << "balance: largest over mean compute " << (mean > 0 ? NumberText(most / mean) : "1.00")
      << "; all ranks together " << FlopsText(total) << ", intra "
      << BytesText(static_cast<double>(intra)) << ", inter "
      << BytesText(static_cast<double>(inter)) << " per step\n";
  if (timed && mean_seconds > 0) {
    out << "balance by the profile: largest over mean time of owners "
        << NumberText(*std::max_element(seconds.begin(), seconds.end()) / mean_seconds) << "\n";
  }
  out << "\n";
}

void PrintMatrices(const Session& session, bool all, std::ostream& out) {
  const Plan& plan = session.plan;
  std::vector<std::size_t> order(plan.matrices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!all) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return plan.matrices[a].flops > plan.matrices[b].flops;
    });
    if (order.size() > kFewMatrices) order.resize(kFewMatrices);
  }
  Table table(
      {"tensor", "shape", "<dtype", "<rule", "owner", "compute", "peak", "other path", "<path"});
  for (const std::size_t i : order) {
    const PlanMatrix& matrix = plan.matrices[i];
    const ModelTensor& tensor = session.model.tensors[session.routing.matrices[i].tensor];
    table.Add({matrix.name, ShapeName(tensor), DtypeName(tensor, matrix.dtype),
               RuleName(matrix.rule), matrix.owner < 0 ? "all" : absl::StrCat(matrix.owner),
               FlopsText(matrix.flops), BytesText(static_cast<double>(matrix.peak_bytes)),
               matrix.alternative_peak_bytes < 0
                   ? "-"
                   : BytesText(static_cast<double>(matrix.alternative_peak_bytes)),
               PathName(matrix.path)});
  }
  table.Print(out);
  if (order.size() < plan.matrices.size()) {
    out << "... and " << plan.matrices.size() - order.size()
        << " cheaper tensors; --all shows them\n";
  }
  for (const PlanMatrix& matrix : plan.matrices) {
    if (!matrix.fallback.empty()) {
      out << "fallback: " << Visible(matrix.name) << ": " << matrix.fallback << "\n";
    }
  }
  PrintWarnings(plan, out);
}

const char* TriggerName(Trigger trigger) {
  switch (trigger) {
    case Trigger::kSubmitted:
      return "submit";
    case Trigger::kStepClosed:
      return "step";
    case Trigger::kNeeded:
      break;
  }
  return "need";
}

void PrintLanes(const Plan& plan, int rank, std::ostream& out) {
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const auto& ops = plan.lanes[rank][lane];
    out << "rank " << rank << ", lane " << std::string(Name(static_cast<Lane>(lane))) << ": "
        << ops.size() << " ops\n";
    if (ops.empty()) continue;
    Table table({"op", "<kind", "<matrix", "<group", "root", "<from", "<to", "bytes", "compute",
                 "<trigger", "<after"});
    for (const std::int32_t index : ops) {
      const Op& op = plan.ops[index];
      const std::size_t matrices = MatricesOf(plan, op).size();
      std::string matrix = op.matrix < 0 ? "-" : plan.matrices[op.matrix].name;
      if (matrices > 1) absl::StrAppend(&matrix, " +", matrices - 1);
      const Group& group = plan.groups[op.group];
      const int part = group.PartOf(rank);
      const std::int64_t bytes = IsCollective(op.kind) ? PayloadBytes(plan, op, rank) : 0;
      const char* const pair = op.with_next ? "pair: " : "";
      table.Add({absl::StrCat(index), absl::StrCat(pair, KindName(op.kind)), matrix,
                 group.PartName(part), op.root < 0 ? "-" : absl::StrCat(group.parts[part][op.root]),
                 std::string(Name(op.source)), std::string(Name(op.target)),
                 bytes == 0 ? "-" : BytesText(static_cast<double>(bytes)),
                 op.flops == 0 ? "-" : FlopsText(op.flops), TriggerName(op.trigger),
                 absl::StrJoin(op.after, " ")});
    }
    table.Print(out);
    out << "\n";
  }
  PrintWarnings(plan, out);
}

}  // namespace

int PlanCommand(const Options& options) {
  const auto session = PreparePlan(options);
  if (!session.ok()) {
    return Complain(std::string(session.status().message()), kBadInput, options.error_fd);
  }
  const Plan& plan = session->plan;
  const bool has_head = !options.json && options.plan_rank < 0;
  if (!session->costs.mismatch.empty() && !has_head) {
    Complain("warning: " + session->costs.mismatch, 0);
  }
  if (options.json) {
    std::cout << PlanToJson(plan) << "\n";
  } else if (options.plan_rank >= 0) {
    PrintLanes(plan, options.plan_rank, std::cout);
  } else {
    PrintHead(*session, std::cout);
    if (session->choice) PrintChoice(*session->choice, std::cout);
    if (session->strategy_switch) PrintSwitch(*session->strategy_switch, std::cout);
    PrintRanks(*session, options.all, std::cout);
    PrintMatrices(*session, options.all, std::cout);
  }
  return std::cout.flush() ? 0 : Complain("cannot write to stdout", kFailed);
}

}  // namespace weft::tool
