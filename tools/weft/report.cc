#include "tools/weft/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/weft/names.h"
#include "tools/weft/table.h"
#include "tools/weft/visible.h"
#include "tools/weft/warnings.h"

namespace weft::tool {
namespace {

using nlohmann::ordered_json;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Median over the steps of the largest value among the ranks.
template <typename Value>
double MedianOfMost(const RunReport& report, Value value) {
  std::vector<double> most;
  for (const auto& ranks : report.metrics) {
    double largest = 0;
    for (const StepMetrics& metrics : ranks) {
      largest = std::max(largest, static_cast<double>(value(metrics)));
    }
    most.push_back(largest);
  }
  return Median(std::move(most));
}

struct Summary {
  double step, optimizer, exposed, ns, compute, imbalance, host;
  double intra_seconds, inter_seconds;
  double intra_bytes = 0, inter_bytes = 0;  // of all ranks, last step
};

Summary Summarize(const RunReport& report) {
  constexpr int kIntra = static_cast<int>(Lane::kIntra);
  constexpr int kInter = static_cast<int>(Lane::kInter);
  Summary s{};
  s.step = Median(report.step_seconds);
  std::vector<double> optimizer;
  for (const auto& ranks : report.metrics) optimizer.push_back(OptimizerSeconds(ranks));
  s.optimizer = Median(std::move(optimizer));
  s.exposed = MedianOfMost(report, [](const auto& m) { return m.exposed_communication_seconds; });
  s.ns = MedianOfMost(report, [](const auto& m) { return m.ns_seconds; });
  s.compute = MedianOfMost(report, [](const auto& m) { return m.compute_seconds; });
  s.host = MedianOfMost(report, [](const auto& m) { return m.host_microseconds_per_job; });
  s.intra_seconds = MedianOfMost(report, [](const auto& m) { return m.lane_seconds[kIntra]; });
  s.inter_seconds = MedianOfMost(report, [](const auto& m) { return m.lane_seconds[kInter]; });
  std::vector<double> imbalances;
  for (const auto& ranks : report.metrics) imbalances.push_back(Imbalance(ranks));
  s.imbalance = Median(std::move(imbalances));
  if (!report.metrics.empty()) {
    for (const StepMetrics& metrics : report.metrics.back()) {
      s.intra_bytes += static_cast<double>(metrics.lane_bytes[kIntra]);
      s.inter_bytes += static_cast<double>(metrics.lane_bytes[kInter]);
    }
  }
  return s;
}

void PrintVerify(const RunReport& report, const VerifyReport& verify, bool verbose,
                 std::ostream& out) {
  constexpr std::size_t kFew = 10;
  std::vector<const MatrixCheck*> order;
  for (const MatrixCheck& check : verify.matrices) order.push_back(&check);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return Worse(*a, *b); });
  if (!verbose && order.size() > kFew) order.resize(kFew);
  out << "\nagainst the serial float64 update (relative Frobenius errors):\n";
  Table table({"tensor", "of the change", "allowed", "used", "of the weight", "<"});
  for (const MatrixCheck* check : order) {
    table.Add({check->name, NumberText(check->error), NumberText(check->bound),
               NumberText(check->Used()), NumberText(check->weight_error),
               check->ok ? "" : "BEYOND"});
  }
  table.Print(out);
  if (order.size() < verify.matrices.size()) {
    out << "... and " << verify.matrices.size() - order.size()
        << " tensors that used less; --verbose shows them\n";
  }
  const MatrixCheck& worst = verify.matrices[verify.worst];
  out << "worst: " << Visible(worst.name) << ", " << NumberText(worst.Used())
      << " of what is allowed\n";
  if (report.equal_replicas > 0) {
    out << "replicas: the weights of all " << report.equal_replicas
        << " ranks were compared, their bits are equal\n";
  }
}

void PrintCounters(const RunReport& report, std::ostream& out) {
  out << "\n";
  Table table(
      {"tensor (rank 0)", "updates", "NS runs", "collectives", "bytes", "<path", "<fallback"});
  for (const MatrixCounters& counters : report.counters) {
    table.Add({counters.name, absl::StrCat(counters.updates), absl::StrCat(counters.ns_runs),
               absl::StrCat(counters.collectives), BytesText(static_cast<double>(counters.bytes)),
               PathName(counters.path), counters.fallback});
  }
  table.Print(out);
}

}  // namespace

void PrintReport(const Session& session, const RunReport& report,
                 const std::optional<VerifyReport>& verify, std::ostream& out) {
  const Summary s = Summarize(report);
  const ProcessGrid& grid = session.plan.topology.grid;
  out << Visible(session.model.path) << ": " << session.routing.matrices.size() << " of "
      << session.model.tensors.size() << " tensors updated\n";
  for (const auto& [reason, count] : session.routing.reasons) {
    out << "  " << count << "  " << Visible(reason) << "\n";
  }
  for (const PlanMatrix& matrix : session.plan.matrices) {
    if (!matrix.fallback.empty()) {
      out << "fallback: " << Visible(matrix.name) << ": " << matrix.fallback << "\n";
    }
  }
  PrintWarnings(session.plan, out);
  out << "world: " << grid.nodes << " x " << grid.ranks_per_node << " ranks, transport "
      << session.options.transport << "; strategy " << std::string(Name(session.plan.strategy))
      << (session.choice ? " (auto)" : "") << ", layout "
      << std::string(Name(session.settings.layout)) << "; " << report.step_seconds.size()
      << " steps\n\n";
  Table table({"per step", "median", "<of"});
  table.Add({"step", SecondsText(s.step), "rank 0"});
  table.Add({"optimizer", SecondsText(s.optimizer), "all ranks"});
  table.Add({"exposed communication", SecondsText(s.exposed), "slowest rank"});
  table.Add({"Newton-Schulz", SecondsText(s.ns), "slowest rank"});
  table.Add({"compute lane", SecondsText(s.compute), "slowest rank"});
  table.Add({"intra lane", SecondsText(s.intra_seconds), "slowest rank"});
  table.Add({"inter lane", SecondsText(s.inter_seconds), "slowest rank"});
  table.Add({"intra bytes", BytesText(s.intra_bytes), "all ranks together"});
  table.Add({"inter bytes", BytesText(s.inter_bytes), "all ranks together"});
  table.Add({"imbalance", NumberText(s.imbalance), "all ranks"});
  table.Add({"host per job", absl::StrCat(NumberText(s.host), " us"), "slowest rank"});
  table.Print(out);
  if (session.options.verbose) PrintCounters(report, out);
  if (verify) PrintVerify(report, *verify, session.options.verbose, out);
}

void PrintReportJson(const Session& session, const RunReport& report,
                     const std::vector<NotFinite>& not_finite,
                     const std::optional<VerifyReport>& verify, std::ostream& out) {
  const Summary s = Summarize(report);
  const ProcessGrid& grid = session.plan.topology.grid;
  ordered_json json;
  json["model"] = session.model.path;
  json["nodes"] = grid.nodes;
  json["ranks_per_node"] = grid.ranks_per_node;
  json["transport"] = session.options.transport;
  json["strategy"] = std::string(Name(session.plan.strategy));
  json["layout"] = std::string(Name(session.settings.layout));
  json["dtype"] = session.options.dtype;
  json["steps"] = report.step_seconds.size();
  ordered_json routing = ordered_json::object();
  for (const auto& [reason, count] : session.routing.reasons) routing[reason] = count;
  json["tensors"] = session.model.tensors.size();
  json["updated"] = session.routing.matrices.size();
  json["routing"] = routing;
  ordered_json warnings = ordered_json::array();
  for (const PlanWarning& warning : WarningsOf(session.plan)) {
    warnings.push_back({{"text", warning.text}, {"matrices", warning.matrices}});
  }
  json["warnings"] = warnings;
  json["step_seconds"] = s.step;
  json["optimizer_seconds"] = s.optimizer;
  json["exposed_communication_seconds"] = s.exposed;
  json["ns_seconds"] = s.ns;
  json["compute_seconds"] = s.compute;
  json["intra_seconds"] = s.intra_seconds;
  json["inter_seconds"] = s.inter_seconds;
  json["intra_bytes"] = s.intra_bytes;
  json["inter_bytes"] = s.inter_bytes;
  json["imbalance"] = s.imbalance;
  json["host_microseconds_per_job"] = s.host;
  if (session.options.verbose) {
    ordered_json matrices = ordered_json::array();
    for (const MatrixCounters& counters : report.counters) {
      matrices.push_back({{"name", counters.name},
                          {"path", PathName(counters.path)},
                          {"fallback", counters.fallback},
                          {"updates", counters.updates},
                          {"ns_runs", counters.ns_runs},
                          {"collectives", counters.collectives},
                          {"bytes", counters.bytes}});
    }
    json["matrices"] = matrices;
  }
  // A diverged model would have all its tensors here.
  constexpr std::size_t kFewTensors = 10;
  ordered_json first = ordered_json::array();
  for (std::size_t i = 0; i < std::min(kFewTensors, not_finite.size()); ++i) {
    first.push_back({{"name", not_finite[i].name},
                     {"count", not_finite[i].count},
                     {"in_model", not_finite[i].in_model}});
  }
  json["not_finite"] = {{"tensors", not_finite.size()}, {"first", first}};
  if (verify) {
    ordered_json checks = ordered_json::array();
    for (const MatrixCheck& check : verify->matrices) {
      checks.push_back({{"name", check.name},
                        {"error", check.error},
                        {"allowed", check.bound},
                        {"used", check.Used()},
                        {"weight_error", check.weight_error},
                        {"ok", check.ok}});
    }
    json["verify"] = {{"ok", verify->ok},
                      {"worst", verify->matrices[verify->worst].name},
                      {"used", verify->matrices[verify->worst].Used()},
                      {"equal_replicas", report.equal_replicas},
                      {"matrices", checks}};
  }
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace weft::tool
