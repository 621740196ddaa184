#include "weft/topology_file.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "scheduler/strict_json.h"
#include "scheduler/topology_json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

nlohmann::ordered_json ToJson(const Link& link) {
  return {{"latency_us", link.latency_us}, {"gigabytes_per_second", link.gigabytes_per_second}};
}

absl::Status Refuse(const std::string& field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("topology: ", field, " ", what, "."));
}

absl::Status CheckFields(const Json& object, const std::string& where,
                         std::initializer_list<const char*> known) {
  for (const auto& item : object.items()) {
    bool found = false;
    for (const char* name : known) found = found || item.key() == name;
    if (!found) return Refuse(absl::StrCat("'", where, item.key(), "'"), "is not a known field");
  }
  return absl::OkStatus();
}

// Leaves `value` alone when the field is missing.
absl::Status ReadInt(const Json& object, const std::string& where, const char* name, int lowest,
                     int* value) {
  const auto it = object.find(name);
  if (it == object.end()) return absl::OkStatus();
  const std::string field = absl::StrCat("'", where, name, "'");
  if (!it->is_number_integer()) return Refuse(field, "must be a whole number");
  const bool huge =
      it->is_number_unsigned() && it->get<std::uint64_t>() > static_cast<std::uint64_t>(kMostRanks);
  if (huge || it->get<std::int64_t>() < lowest || it->get<std::int64_t>() > kMostRanks) {
    return Refuse(field,
                  absl::StrCat("must lie in ", lowest, " to ", kMostRanks, ", not ", it->dump()));
  }
  *value = it->get<int>();
  return absl::OkStatus();
}

absl::Status ReadNumber(const Json& object, const std::string& where, const char* name,
                        double* value) {
  const auto it = object.find(name);
  if (it == object.end()) return absl::OkStatus();
  const std::string field = absl::StrCat("'", where, name, "'");
  if (!it->is_number()) return Refuse(field, "must be a number");
  const double number = it->get<double>();
  if (!std::isfinite(number) || number < 0) {
    return Refuse(field, "must be finite and not negative");
  }
  *value = number;
  return absl::OkStatus();
}

// An empty object when the field is missing.
absl::StatusOr<Json> ReadObject(const Json& object, const char* name,
                                std::initializer_list<const char*> known) {
  const auto it = object.find(name);
  if (it == object.end()) return Json::object();
  if (!it->is_object()) return Refuse(absl::StrCat("'", name, "'"), "must be an object");
  WEFT_RETURN_IF_ERROR(CheckFields(*it, absl::StrCat(name, "."), known));
  return *it;
}

absl::Status ReadLink(const Json& link_json, const std::string& where, Link* link) {
  WEFT_RETURN_IF_ERROR(ReadNumber(link_json, where, "latency_us", &link->latency_us));
  return ReadNumber(link_json, where, "gigabytes_per_second", &link->gigabytes_per_second);
}

absl::Status ReadLinkClass(const Json& intra, LinkClass* link_class) {
  const auto it = intra.find("class");
  if (it == intra.end()) return absl::OkStatus();
  for (const LinkClass known :
       {LinkClass::kPcie, LinkClass::kPcieSwitch, LinkClass::kNvlink, LinkClass::kShm}) {
    if (*it != std::string(Name(known))) continue;
    *link_class = known;
    return absl::OkStatus();
  }
  return Refuse("'intra.class'", "must be \"pcie\", \"pcie-switch\", \"nvlink\" or \"shm\"");
}

}  // namespace

absl::StatusOr<Topology> ParseTopology(std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, scheduler::ParseStrictObject(text, "topology"));
  WEFT_RETURN_IF_ERROR(CheckFields(
      json, "", {"nodes", "ranks_per_node", "nics_per_node", "intra", "inter", "root_complexes"}));
  for (const char* name : {"nodes", "ranks_per_node"}) {
    if (!json.contains(name)) return Refuse(absl::StrCat("'", name, "'"), "is missing");
  }
  Topology topology;
  WEFT_RETURN_IF_ERROR(ReadInt(json, "", "nodes", 1, &topology.grid.nodes));
  WEFT_RETURN_IF_ERROR(ReadInt(json, "", "ranks_per_node", 1, &topology.grid.ranks_per_node));
  WEFT_RETURN_IF_ERROR(ReadInt(json, "", "nics_per_node", 0, &topology.nics_per_node));
  WEFT_ASSIGN_OR_RETURN(const Json intra,
                        ReadObject(json, "intra", {"latency_us", "gigabytes_per_second", "class"}));
  WEFT_RETURN_IF_ERROR(ReadLink(intra, "intra.", &topology.intra));
  WEFT_RETURN_IF_ERROR(ReadLinkClass(intra, &topology.intra_class));
  WEFT_ASSIGN_OR_RETURN(const Json inter,
                        ReadObject(json, "inter", {"latency_us", "gigabytes_per_second"}));
  WEFT_RETURN_IF_ERROR(ReadLink(inter, "inter.", &topology.inter));
  WEFT_ASSIGN_OR_RETURN(const Json root_complexes,
                        ReadObject(json, "root_complexes", {"per_node", "gigabytes_per_second"}));
  WEFT_RETURN_IF_ERROR(
      ReadInt(root_complexes, "root_complexes.", "per_node", 1, &topology.root_complexes_per_node));
  WEFT_RETURN_IF_ERROR(ReadNumber(root_complexes, "root_complexes.", "gigabytes_per_second",
                                  &topology.root_complex_gigabytes_per_second));
  WEFT_RETURN_IF_ERROR(Validate(topology));
  return topology;
}

nlohmann::ordered_json scheduler::ToJson(const Topology& topology) {
  nlohmann::ordered_json intra = weft::ToJson(topology.intra);
  intra["class"] = std::string(Name(topology.intra_class));
  return {{"nodes", topology.grid.nodes},
          {"ranks_per_node", topology.grid.ranks_per_node},
          {"nics_per_node", topology.nics_per_node},
          {"intra", std::move(intra)},
          {"inter", weft::ToJson(topology.inter)},
          {"root_complexes",
           {{"per_node", topology.root_complexes_per_node},
            {"gigabytes_per_second", topology.root_complex_gigabytes_per_second}}}};
}

std::string TopologyToJson(const Topology& topology) { return scheduler::ToJson(topology).dump(2); }

absl::StatusOr<Topology> ReadTopology(const std::string& path) {
  constexpr std::uint64_t kLargestText = 1'000'000;
  WEFT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kLargestText));
  absl::StatusOr<Topology> topology = ParseTopology(text);
  if (topology.ok()) return topology;
  return absl::Status(topology.status().code(),
                      absl::StrCat(path, ": ", topology.status().message()));
}

}  // namespace weft
