// Shape manifests: models that are described, not stored.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/weft/json_file.h"
#include "tools/weft/model.h"
#include "tools/weft/numbers.h"
#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostMatrices = 1'000'000;
// Weights are at most 8 bytes an element, so sizes in bytes stay in range.
constexpr std::int64_t kMostElements = std::int64_t{1} << 59;

constexpr char kMetadataName[] = "__metadata__";

// An integer from the entry's `field`, `standard` where it is left out.
absl::StatusOr<std::int64_t> IntegerField(const json& entry, const char* field,
                                          std::int64_t standard, std::int64_t least,
                                          std::int64_t most, const std::string& subject) {
  if (!entry.contains(field)) return standard;
  const json& value = entry.at(field);
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most) &&
                              static_cast<std::int64_t>(value.get<std::uint64_t>()) >= least
                        : false;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject, " needs an integer from ", least, " to ", most, " for ", field));
  }
  return static_cast<std::int64_t>(value.get<std::uint64_t>());
}

absl::Status ParseShape(const json& entry, ModelTensor& tensor, const std::string& subject) {
  if (!entry.contains("shape") || !entry.at("shape").is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(subject, " needs a list of extents for shape"));
  }
  tensor.elements = 1;
  for (const json& extent : entry.at("shape")) {
    if (!extent.is_number_unsigned() ||
        extent.get<std::uint64_t>() > static_cast<std::uint64_t>(kMostElements)) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has an extent in its shape that is not a size"));
    }
    tensor.shape.push_back(static_cast<std::int64_t>(extent.get<std::uint64_t>()));
  }
  for (const std::int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(tensor.elements, extent, &tensor.elements) ||
        tensor.elements > kMostElements) {
      return absl::InvalidArgumentError(absl::StrCat(
          subject, " has the shape ", ShapeText(tensor.shape), ", which is too large"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ModelTensor>> ParseManifest(std::string_view text,
                                                       const std::string& source) {
  WEFT_ASSIGN_OR_RETURN(const json manifest, ParseJson(text, source));
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", what));
  };
  if (!manifest.is_object() || !manifest.contains("matrices") ||
      !manifest.at("matrices").is_array()) {
    return refuse("a shape manifest is an object with a list named matrices");
  }
  for (const auto& [key, value] : manifest.items()) {
    if (key != "matrices") return refuse(absl::StrCat("unknown key ", Quoted(key)));
  }
  std::vector<ModelTensor> tensors;
  std::set<std::string> names;
  std::size_t index = 0;
  for (const json& entry : manifest.at("matrices")) {
    const std::string place = absl::StrCat("entry ", index++, " of matrices");
    if (!entry.is_object()) return refuse(absl::StrCat(place, " is not an object"));
    for (const auto& [key, value] : entry.items()) {
      static const std::set<std::string> kKnown = {"name", "shape", "dtype", "layer", "count"};
      if (kKnown.count(key) == 0) {
        return refuse(absl::StrCat(place, " has the unknown key ", Quoted(key)));
      }
    }
    if (!entry.contains("name") || !entry.at("name").is_string() ||
        entry.at("name").get_ref<const std::string&>().empty()) {
      return refuse(absl::StrCat(place, " needs a text for name"));
    }
    ModelTensor tensor;
    tensor.name = entry.at("name").get<std::string>();
    const std::string subject = absl::StrCat(source, ": matrix ", Quoted(tensor.name));
    tensor.dtype = "F32";
    if (entry.contains("dtype")) {
      if (entry.at("dtype").is_string()) tensor.dtype = entry.at("dtype").get<std::string>();
      if (!entry.at("dtype").is_string() || !FileFloatOf(tensor.dtype)) {
        return absl::InvalidArgumentError(
            absl::StrCat(subject, " needs F32, BF16, F16 or F64 for dtype"));
      }
    }
    WEFT_RETURN_IF_ERROR(ParseShape(entry, tensor, subject));
    WEFT_ASSIGN_OR_RETURN(const std::int64_t count,
                          IntegerField(entry, "count", 1, 1, kMostMatrices, subject));
    WEFT_ASSIGN_OR_RETURN(const std::int64_t layer,
                          IntegerField(entry, "layer", -1, 0, kMostMatrices, subject));
    const std::size_t mark = tensor.name.find("{}");
    for (std::int64_t i = 0; i < count; ++i) {
      ModelTensor copy = tensor;
      if (mark != std::string::npos) {
        copy.name.replace(mark, 2, std::to_string(i));
      } else if (entry.contains("count")) {
        absl::StrAppend(&copy.name, ".", i);
      }
      if (copy.name == kMetadataName) {
        return refuse(absl::StrCat("the name ", Quoted(copy.name),
                                   " is the one that safetensors keeps for its metadata"));
      }
      copy.layer = layer >= 0 ? static_cast<int>(layer + i) : LayerOf(copy.name);
      if (!names.insert(copy.name).second) {
        return refuse(absl::StrCat("the name ", Quoted(copy.name), " appears twice"));
      }
      if (static_cast<std::int64_t>(tensors.size()) == kMostMatrices) {
        return refuse(absl::StrCat("more than ", kMostMatrices, " matrices"));
      }
      tensors.push_back(std::move(copy));
    }
  }
  return tensors;
}

}  // namespace weft::tool
