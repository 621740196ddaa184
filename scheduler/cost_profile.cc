#include "weft/cost_profile.h"

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "scheduler/strict_json.h"
#include "scheduler/topology_json.h"
#include "weft/topology_file.h"

namespace weft {
namespace {

using base::View;
using scheduler::Fields;
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr char kSubject[] = "profile";
constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;
constexpr int kMostBatch = 1 << 20;
constexpr int kMostProfileThreads = 1 << 20;

// The enumerators of a field and their names.
template <typename Enum>
struct Choice {
  std::string_view name;
  Enum value;
};

constexpr std::array kComputeKinds = {
    Choice<ComputeKind>{"newton_schulz", ComputeKind::kNewtonSchulz},
    Choice<ComputeKind>{"row_norm", ComputeKind::kRowNorm}};
constexpr std::array kGroups = {Choice<GroupClass>{"world", GroupClass::kWorld},
                                Choice<GroupClass>{"intra", GroupClass::kIntra},
                                Choice<GroupClass>{"inter", GroupClass::kInter}};
constexpr std::array kDTypeNames = {Choice<DType>{"f32", DType::kF32},
                                    Choice<DType>{"bf16", DType::kBF16},
                                    Choice<DType>{"f16", DType::kF16}};
constexpr std::array kCollectives = {Choice<OpKind>{"all_reduce", OpKind::kAllReduce},
                                     Choice<OpKind>{"reduce", OpKind::kReduce},
                                     Choice<OpKind>{"broadcast", OpKind::kBroadcast},
                                     Choice<OpKind>{"all_gather", OpKind::kAllGather},
                                     Choice<OpKind>{"reduce_scatter", OpKind::kReduceScatter},
                                     Choice<OpKind>{"gather", OpKind::kGather},
                                     Choice<OpKind>{"scatter", OpKind::kScatter}};

template <typename Enum, std::size_t kCount>
std::string_view NameIn(const std::array<Choice<Enum>, kCount>& choices, Enum value) {
  for (const Choice<Enum>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "invalid";
}

template <typename Enum, std::size_t kCount>
absl::Status ReadChoice(const Fields& fields, const char* field,
                        const std::array<Choice<Enum>, kCount>& choices, Enum* value) {
  std::string text, known;
  WEFT_RETURN_IF_ERROR(fields.ReadText(field, &text));
  for (std::size_t i = 0; i < kCount; ++i) {
    if (choices[i].name == text) {
      *value = choices[i].value;
      return absl::OkStatus();
    }
    absl::StrAppend(&known, i == 0 ? "" : i + 1 == kCount ? " or " : ", ", View(choices[i].name));
  }
  return fields.Refuse(field, absl::StrCat("must be ", known, ", not '", text, "'"));
}

absl::Status ReadFingerprint(const Json& json, ProfileFingerprint* fingerprint) {
  const Fields fields(json, kSubject, "fingerprint.");
  WEFT_RETURN_IF_ERROR(fields.Check(
      {"weft", "math_library", "device_kind", "device", "threads", "transport", "topology"}));
  WEFT_RETURN_IF_ERROR(fields.ReadText("weft", &fingerprint->weft));
  WEFT_RETURN_IF_ERROR(fields.ReadText("math_library", &fingerprint->math_library));
  WEFT_RETURN_IF_ERROR(fields.ReadText("device_kind", &fingerprint->device_kind));
  WEFT_RETURN_IF_ERROR(fields.ReadText("device", &fingerprint->device));
  WEFT_RETURN_IF_ERROR(fields.ReadInt("threads", 1, kMostProfileThreads, &fingerprint->threads));
  WEFT_RETURN_IF_ERROR(fields.ReadText("transport", &fingerprint->transport));
  absl::StatusOr<Topology> topology =
      ParseTopology(json.at("topology").dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!topology.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSubject, ": 'fingerprint': ", topology.status().message()));
  }
  fingerprint->topology = *topology;
  return absl::OkStatus();
}

absl::Status ReadCompute(const Json& json, const std::string& where, ComputeSample* sample) {
  const Fields fields(json, kSubject, where);
  WEFT_RETURN_IF_ERROR(fields.Check(
      {"kind", "rows", "cols", "dtype", "recipe", "batch", "flops", "seconds", "spread"}));
  ComputeShape& shape = sample->shape;
  WEFT_RETURN_IF_ERROR(ReadChoice(fields, "kind", kComputeKinds, &shape.kind));
  WEFT_RETURN_IF_ERROR(fields.ReadInt("rows", std::int64_t{1}, kMostExtent, &shape.rows));
  WEFT_RETURN_IF_ERROR(fields.ReadInt("cols", std::int64_t{1}, kMostExtent, &shape.cols));
  if (shape.rows > shape.cols) {
    return fields.Refuse(
        "rows", absl::StrCat("must not exceed cols, but is ", shape.rows, " against ", shape.cols));
  }
  WEFT_RETURN_IF_ERROR(ReadChoice(fields, "dtype", kDTypeNames, &shape.dtype));
  WEFT_RETURN_IF_ERROR(fields.ReadText("recipe", &shape.recipe));
  WEFT_RETURN_IF_ERROR(fields.ReadInt("batch", 1, kMostBatch, &sample->batch));
  WEFT_RETURN_IF_ERROR(fields.ReadNumber("flops", /*positive=*/true, &sample->flops));
  WEFT_RETURN_IF_ERROR(fields.ReadNumber("seconds", /*positive=*/true, &sample->seconds));
  return fields.ReadNumber("spread", /*positive=*/false, &sample->spread);
}

absl::Status ReadLinkSample(const Json& json, const std::string& where, LinkSample* sample) {
  const Fields fields(json, kSubject, where);
  WEFT_RETURN_IF_ERROR(fields.Check({"bytes", "seconds", "spread"}));
  WEFT_RETURN_IF_ERROR(
      fields.ReadInt("bytes", std::int64_t{0}, std::int64_t{1} << 60, &sample->bytes));
  WEFT_RETURN_IF_ERROR(fields.ReadNumber("seconds", /*positive=*/true, &sample->seconds));
  return fields.ReadNumber("spread", /*positive=*/false, &sample->spread);
}

absl::Status ReadCollective(const Json& json, const std::string& where, CollectiveCost* cost) {
  const Fields fields(json, kSubject, where);
  WEFT_RETURN_IF_ERROR(fields.Check({"kind", "group", "ranks", "latency_us", "gigabytes_per_second",
                                     "max_residual", "rms_residual", "samples"}));
  WEFT_RETURN_IF_ERROR(ReadChoice(fields, "kind", kCollectives, &cost->kind));
  WEFT_RETURN_IF_ERROR(ReadChoice(fields, "group", kGroups, &cost->group));
  WEFT_RETURN_IF_ERROR(fields.ReadInt("ranks", 2, kMostRanks, &cost->ranks));
  LinkFit& fit = cost->fit;
  for (const auto& [field, value] : {std::pair<const char*, double*>{"latency_us", &fit.latency_us},
                                     {"gigabytes_per_second", &fit.gigabytes_per_second},
                                     {"max_residual", &fit.max_residual},
                                     {"rms_residual", &fit.rms_residual}}) {
    WEFT_RETURN_IF_ERROR(fields.ReadNumber(field, /*positive=*/false, value));
  }
  WEFT_RETURN_IF_ERROR(fields.CheckArray("samples"));
  for (const Json& item : json.at("samples")) {
    const std::string place = absl::StrCat(where, "samples[", cost->samples.size(), "].");
    LinkSample sample;
    WEFT_RETURN_IF_ERROR(ReadLinkSample(item, place, &sample));
    if (!cost->samples.empty() && cost->samples.back().bytes >= sample.bytes) {
      return fields.Refuse("samples", "must have ascending sizes");
    }
    cost->samples.push_back(sample);
  }
  return absl::OkStatus();
}

absl::Status ReadFormat(const Json& json) {
  const Fields fields(json, kSubject, "");
  if (!json.contains("format")) return fields.Refuse("format", "is missing");
  int format = 0;
  WEFT_RETURN_IF_ERROR(fields.ReadInt("format", 0, 1'000'000, &format));
  if (format == CostProfile::kFormat) return absl::OkStatus();
  return fields.Refuse(
      "format",
      absl::StrCat("is ", format, ", which is ", format < CostProfile::kFormat ? "older" : "newer",
                   " than the ", CostProfile::kFormat, " that is read here; measure again"));
}

template <typename Item, typename Read, typename Key>
absl::Status ReadList(const Json& json, const char* field, Read read, Key key,
                      std::vector<Item>* items) {
  const Fields fields(json, kSubject, "");
  WEFT_RETURN_IF_ERROR(fields.CheckArray(field));
  std::set<decltype(key(Item{}))> known;
  for (const Json& entry : json.at(field)) {
    const std::string place = absl::StrCat(field, "[", items->size(), "]");
    Item item;
    WEFT_RETURN_IF_ERROR(read(entry, place + ".", &item));
    if (!known.insert(key(item)).second) {
      return fields.Refuse(place, "is measured by an earlier entry");
    }
    items->push_back(std::move(item));
  }
  return absl::OkStatus();
}

// What differs, or nothing where the text of `current` is not known.
struct Difference {
  const char* field;
  std::string was, is;
  bool stale;
};

std::string LinkText(const Link& link) {
  return absl::StrCat(link.latency_us, " us and ", link.gigabytes_per_second, " GB/s");
}

std::string RootComplexText(const Topology& topology) {
  return absl::StrCat(topology.root_complexes_per_node, " with ",
                      topology.root_complex_gigabytes_per_second, " GB/s");
}

std::vector<Difference> Compared(const ProfileFingerprint& a, const ProfileFingerprint& b) {
  const Topology &s = a.topology, &t = b.topology;
  const auto known_threads = [&](int threads) {
    return b.threads == 0 ? std::string() : absl::StrCat(threads);
  };
  return {{"Weft's version", a.weft, b.weft, true},
          {"the math library", a.math_library, b.math_library, true},
          {"the kind of device", a.device_kind, b.device_kind, false},
          {"the device", a.device, b.device, false},
          {"the number of threads", known_threads(a.threads), known_threads(b.threads), false},
          {"the transport", a.transport, b.transport, false},
          {"the number of nodes", absl::StrCat(s.grid.nodes), absl::StrCat(t.grid.nodes), false},
          {"the number of ranks per node", absl::StrCat(s.grid.ranks_per_node),
           absl::StrCat(t.grid.ranks_per_node), false},
          {"the number of NICs per node", absl::StrCat(s.nics_per_node),
           absl::StrCat(t.nics_per_node), false},
          {"the intra link", LinkText(s.intra), LinkText(t.intra), false},
          {"the inter link", LinkText(s.inter), LinkText(t.inter), false},
          {"the class of intra links", std::string(Name(s.intra_class)),
           std::string(Name(t.intra_class)), false},
          {"the limit of root complexes", RootComplexText(s), RootComplexText(t), false}};
}

std::string Text(std::string_view name) { return std::string(name); }

}  // namespace

std::string_view Name(ComputeKind kind) { return NameIn(kComputeKinds, kind); }
std::string_view Name(GroupClass group) { return NameIn(kGroups, group); }

absl::StatusOr<CostProfile> ParseCostProfile(std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, scheduler::ParseStrictObject(text, kSubject));
  // First, since another format has other fields.
  WEFT_RETURN_IF_ERROR(ReadFormat(json));
  const Fields fields(json, kSubject, "");
  WEFT_RETURN_IF_ERROR(
      fields.Check({"format", "measured_at", "fingerprint", "compute", "collectives"}));
  CostProfile profile;
  WEFT_RETURN_IF_ERROR(fields.ReadText("measured_at", &profile.measured_at));
  WEFT_RETURN_IF_ERROR(ReadFingerprint(json.at("fingerprint"), &profile.fingerprint));
  WEFT_RETURN_IF_ERROR(ReadList(
      json, "compute", ReadCompute,
      [](const ComputeSample& s) { return std::pair(s.shape, s.batch); }, &profile.compute));
  WEFT_RETURN_IF_ERROR(ReadList(
      json, "collectives", ReadCollective,
      [](const CollectiveCost& c) { return std::tuple(c.kind, c.group, c.ranks); },
      &profile.collectives));
  return profile;
}

absl::StatusOr<CostProfile> ReadCostProfile(const std::string& path) {
  constexpr std::uint64_t kLargestText = 100'000'000;
  WEFT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kLargestText));
  absl::StatusOr<CostProfile> profile = ParseCostProfile(text);
  if (profile.ok()) return profile;
  return absl::Status(profile.status().code(),
                      absl::StrCat(path, ": ", profile.status().message()));
}

std::string CostProfileToJson(const CostProfile& profile) {
  const ProfileFingerprint& fingerprint = profile.fingerprint;
  OrderedJson json;
  json["format"] = CostProfile::kFormat;
  json["measured_at"] = profile.measured_at;
  json["fingerprint"] = {{"weft", fingerprint.weft},
                         {"math_library", fingerprint.math_library},
                         {"device_kind", fingerprint.device_kind},
                         {"device", fingerprint.device},
                         {"threads", fingerprint.threads},
                         {"transport", fingerprint.transport},
                         {"topology", scheduler::ToJson(fingerprint.topology)}};
  json["compute"] = OrderedJson::array();
  for (const ComputeSample& sample : profile.compute) {
    json["compute"].push_back({{"kind", Text(Name(sample.shape.kind))},
                               {"rows", sample.shape.rows},
                               {"cols", sample.shape.cols},
                               {"dtype", Text(Name(sample.shape.dtype))},
                               {"recipe", sample.shape.recipe},
                               {"batch", sample.batch},
                               {"flops", sample.flops},
                               {"seconds", sample.seconds},
                               {"spread", sample.spread}});
  }
  json["collectives"] = OrderedJson::array();
  for (const CollectiveCost& cost : profile.collectives) {
    OrderedJson samples = OrderedJson::array();
    for (const LinkSample& sample : cost.samples) {
      samples.push_back(
          {{"bytes", sample.bytes}, {"seconds", sample.seconds}, {"spread", sample.spread}});
    }
    json["collectives"].push_back({{"kind", Text(Name(cost.kind))},
                                   {"group", Text(Name(cost.group))},
                                   {"ranks", cost.ranks},
                                   {"latency_us", cost.fit.latency_us},
                                   {"gigabytes_per_second", cost.fit.gigabytes_per_second},
                                   {"max_residual", cost.fit.max_residual},
                                   {"rms_residual", cost.fit.rms_residual},
                                   {"samples", std::move(samples)}});
  }
  // A device's name that is no UTF-8 must not make writing fail.
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::Status CheckProfile(const CostProfile& profile, const ProfileFingerprint& current) {
  for (const Difference& d : Compared(profile.fingerprint, current)) {
    if (d.is.empty() || d.was == d.is) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the profile, measured at ", profile.measured_at, ", is ", d.stale ? "stale" : "foreign",
        ": ", d.field, " was '", d.was, "' and is '", d.is, "' here."));
  }
  return absl::OkStatus();
}

}  // namespace weft
