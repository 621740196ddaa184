#include "runtime/checkpoint/description.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/parts.h"
#include "runtime/registration.h"

namespace weft::runtime {
namespace {

using Json = nlohmann::ordered_json;

const char* RuleName(const Rule& rule) {
  if (std::holds_alternative<MuonOptions>(rule)) return "Muon";
  if (std::holds_alternative<AdamWOptions>(rule)) return "AdamW";
  return "custom";
}

bool IsRate(double value) { return std::isfinite(value) && value >= 0; }

MatrixRecord ParseRecord(const Json& json) {
  MatrixRecord record;
  json.at("name").get_to(record.name);
  json.at("rows").get_to(record.rows);
  json.at("cols").get_to(record.cols);
  json.at("dtype").get_to(record.dtype);
  json.at("rule").get_to(record.rule);
  json.at("options").get_to(record.options);
  json.at("integers").get_to(record.integers);
  const Json& rates = json.at("rates");
  rates.at("lr").get_to(record.lr);
  rates.at("weight_decay").get_to(record.weight_decay);
  rates.at("registered_lr").get_to(record.registered_lr);
  rates.at("registered_weight_decay").get_to(record.registered_weight_decay);
  return record;
}

// Empty, or what cannot be of a description.
std::string WrongIn(const Description& description) {
  if (description.steps < 0) return absl::StrCat("its number of steps is ", description.steps);
  if (!std::isnormal(description.loss_scale) || description.loss_scale < 0) {
    return absl::StrCat("its loss scale is ", description.loss_scale);
  }
  std::set<std::string> names;
  for (const MatrixRecord& record : description.matrices) {
    const std::string subject = absl::StrCat("matrix '", record.name, "'");
    if (!names.insert(record.name).second) return absl::StrCat("it has ", subject, " twice");
    if (!IsRate(record.lr) || !IsRate(record.weight_decay)) {
      return absl::StrCat(subject, " has a rate that is negative or not finite");
    }
    const auto applied = record.integers.find(kAppliedSteps);
    if (applied != record.integers.end() && applied->second < 0) {
      return absl::StrCat(subject, " has ", applied->second, " applied steps");
    }
  }
  return "";
}

// Empty, or the first of the properties that no option can change, with both values.
std::string DifferentShape(const MatrixRecord& saved, const MatrixRecord& registered) {
  if (saved.rows != registered.rows || saved.cols != registered.cols) {
    return absl::StrCat("is ", saved.rows, " x ", saved.cols, " there and registered as ",
                        registered.rows, " x ", registered.cols);
  }
  if (saved.dtype != registered.dtype) {
    return absl::StrCat("has dtype ", saved.dtype, " there and is registered with ",
                        registered.dtype);
  }
  if (saved.rule != registered.rule) {
    return absl::StrCat("has the rule ", saved.rule, " there and is registered with ",
                        registered.rule);
  }
  return "";
}

// Empty, or the first option that differs, with both values.
std::string DifferentOption(const MatrixRecord& saved, const MatrixRecord& registered) {
  const auto value = [](const MatrixRecord& record, const std::string& name) {
    const auto found = record.options.find(name);
    return found == record.options.end() ? std::string("nothing") : found->second;
  };
  for (const MatrixRecord* record : {&registered, &saved}) {
    for (const auto& [name, unused] : record->options) {
      const std::string there = value(saved, name), here = value(registered, name);
      if (there == here) continue;
      return absl::StrCat("has ", name, " ", there, " there and is registered with ", here);
    }
  }
  return "";
}

}  // namespace

Description DescribeModel(const std::vector<MatrixSpec>& specs) {
  Description description;
  for (const MatrixSpec& spec : specs) {
    MatrixRecord record;
    record.name = spec.name;
    record.rows = LogicalRows(spec, 0, spec.rows);
    record.cols = spec.cols;
    record.dtype = std::string(Name(spec.dtype));
    record.rule = RuleName(spec.rule);
    for (const std::string& field : RuleOptions(spec)) {
      record.options.insert(absl::StrSplit(field, absl::MaxSplits('=', 1)));
    }
    record.lr = record.registered_lr = DefaultLr(spec.rule);
    record.weight_decay = record.registered_weight_decay = DefaultWeightDecay(spec.rule);
    description.matrices.push_back(std::move(record));
  }
  return description;
}

Json ToJson(const Description& description) {
  Json json = Json::object();
  json["steps"] = description.steps;
  json["loss_scale"] = description.loss_scale;
  Json& matrices = json["matrices"] = Json::array();
  for (const MatrixRecord& record : description.matrices) {
    Json entry = Json::object();
    entry["name"] = record.name;
    entry["rows"] = record.rows;
    entry["cols"] = record.cols;
    entry["dtype"] = record.dtype;
    entry["rule"] = record.rule;
    entry["options"] = record.options;
    entry["integers"] = record.integers;
    entry["rates"] = {{"lr", record.lr},
                      {"weight_decay", record.weight_decay},
                      {"registered_lr", record.registered_lr},
                      {"registered_weight_decay", record.registered_weight_decay}};
    matrices.push_back(std::move(entry));
  }
  return json;
}

absl::StatusOr<Description> ParseDescription(const Json& json, const std::string& subject) {
  Description description;
  try {
    json.at("steps").get_to(description.steps);
    json.at("loss_scale").get_to(description.loss_scale);
    for (const Json& entry : json.at("matrices")) {
      description.matrices.push_back(ParseRecord(entry));
    }
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject, " does not describe a run of Weft: ", error.what()));
  }
  const std::string wrong = WrongIn(description);
  if (wrong.empty()) return description;
  return absl::InvalidArgumentError(
      absl::StrCat(subject, " does not describe a run of Weft: ", wrong));
}

absl::Status CompareModels(const Description& saved, const Description& registered,
                           const std::string& subject, std::vector<std::string>* warnings) {
  std::map<std::string, const MatrixRecord*> others;
  for (const MatrixRecord& record : saved.matrices) others[record.name] = &record;
  for (const MatrixRecord& record : registered.matrices) {
    const auto other = others.find(record.name);
    if (other == others.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " does not have the registered matrix '", record.name, "'"));
    }
    std::string difference = DifferentShape(*other->second, record);
    const bool option = difference.empty();
    if (option) difference = DifferentOption(*other->second, record);
    others.erase(other);
    if (difference.empty()) continue;
    const std::string sentence = absl::StrCat(subject, ": matrix '", record.name, "' ", difference);
    if (!option || warnings == nullptr) return absl::InvalidArgumentError(sentence);
    warnings->push_back(sentence);
  }
  if (others.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      subject, " has the matrix '", others.begin()->first, "', which is not registered"));
}

}  // namespace weft::runtime
