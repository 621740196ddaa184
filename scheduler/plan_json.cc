#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "scheduler/limits.h"
#include "scheduler/topology_json.h"
#include "weft/plan.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(std::string_view name) { return std::string(name); }

Json ToJson(const PlanMatrix& matrix) {
  Json json = {{"name", matrix.name},
               {"rows", matrix.rows},
               {"cols", matrix.cols},
               {"dtype", Text(Name(matrix.dtype))},
               {"layout", Text(Name(matrix.layout))},
               {"gradient", Text(Name(matrix.gradient))},
               {"rule", Text(Name(matrix.rule))},
               {"state_bytes_per_element", matrix.state_bytes_per_element},
               {"flops", matrix.flops},
               {"pass_through", matrix.pass_through},
               {"owner", matrix.owner},
               {"bucket", matrix.bucket},
               {"batch", matrix.batch},
               {"exchange", matrix.exchange},
               {"path", matrix.path},
               {"fallback", matrix.fallback},
               {"peak_bytes", matrix.peak_bytes},
               {"warnings", matrix.warnings}};
  if (matrix.alternative_peak_bytes >= 0) {
    json["alternative_peak_bytes"] = matrix.alternative_peak_bytes;
  }
  if (matrix.period > 1) {
    json["period"] = matrix.period;
    json["phase"] = matrix.phase;
    json["norm_vectors"] = matrix.norm_vectors;
    json["norm_set"] = matrix.norm_set;
  }
  if (!matrix.shard_rows.empty()) json["shard_rows"] = matrix.shard_rows;
  return json;
}

Json ToJson(const Plan& plan, const Op& op) {
  Json json = {{"kind", Text(Name(op.kind))},
               {"lane", Text(Name(op.lane))},
               {"stage", Text(Name(op.stage))},
               {"trigger", Text(Name(op.trigger))}};
  if (op.when != When::kAlways) json["when"] = Text(Name(op.when));
  // The first of its set.
  if (op.matrix >= 0) json["matrix"] = plan.matrices[op.matrix].name;
  if (op.set >= 0) json["set"] = op.set;
  if (op.trigger == Trigger::kNeeded) json["use"] = op.use;
  if (op.trigger == Trigger::kSubmitted && plan.limits.reduce_each_pass) json["pass"] = op.pass;
  if (op.form == CollectiveForm::kSplit) json["form"] = "split";
  if (op.with_next) json["with_next"] = true;
  if (op.pieces > 1) {
    json["piece"] = op.piece;
    json["pieces"] = op.pieces;
  }
  json["group"] = plan.groups[op.group].name;
  if (op.root >= 0) json["root"] = op.root;
  if (op.source != Slot::kNone) json["source"] = Text(Name(op.source));
  if (op.target != Slot::kNone) json["target"] = Text(Name(op.target));
  if (IsCollective(op.kind)) {
    json["bytes"] = op.bytes;
  } else {
    json["flops"] = op.flops;
  }
  json["after"] = op.after;
  json["after_previous"] = op.after_previous;
  return json;
}

}  // namespace

std::string PlanToJson(const Plan& plan) {
  Json json;
  json["strategy"] = Text(Name(plan.strategy));
  json["check_gradients"] = plan.check_gradients;
  json["topology"] = scheduler::ToJson(plan.topology);
  Json& limits = json["limits"] = Json::object();
  scheduler::VisitFields(plan.limits, [&](const char* name, auto value) { limits[name] = value; });
  json["matrices"] = Json::array();
  for (const PlanMatrix& matrix : plan.matrices) json["matrices"].push_back(ToJson(matrix));
  json["sets"] = Json::array();
  for (const std::vector<std::int32_t>& set : plan.sets) {
    Json names = Json::array();
    for (std::int32_t m : set) names.push_back(plan.matrices[m].name);
    json["sets"].push_back(std::move(names));
  }
  json["uses"] = Json::array();
  for (const Use& use : plan.uses) {
    json["uses"].push_back({{"layer", use.layer}, {"backward", use.backward}});
  }
  json["groups"] = Json::array();
  for (const Group& group : plan.groups) {
    json["groups"].push_back({{"name", group.name}, {"parts", group.parts}});
  }
  json["ops"] = Json::array();
  for (const Op& op : plan.ops) json["ops"].push_back(ToJson(plan, op));
  json["lanes"] = Json::array();
  for (const auto& rank : plan.lanes) {
    Json lanes = Json::object();
    for (int lane = 0; lane < kLaneCount; ++lane) {
      lanes[Text(Name(static_cast<Lane>(lane)))] = rank[lane];
    }
    json["lanes"].push_back(std::move(lanes));
  }
  // A name that is no UTF-8 must not make printing fail.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weft
