#include "tools/weft/model.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/weft/json_file.h"
#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

using nlohmann::json;

absl::Status AddTensors(std::unique_ptr<SafetensorsReader> reader, Model& model) {
  for (const SafetensorsEntry& entry : reader->entries()) {
    ModelTensor tensor;
    tensor.name = entry.name;
    tensor.dtype = entry.dtype;
    tensor.shape = entry.shape;
    tensor.layer = LayerOf(entry.name);
    tensor.file = reader.get();
    tensor.entry = &entry;
    WEFT_ASSIGN_OR_RETURN(const std::int64_t bytes, SafetensorsElementBytes(entry.dtype));
    tensor.elements = static_cast<std::int64_t>(entry.end - entry.begin) / bytes;
    model.tensors.push_back(std::move(tensor));
  }
  // Keys that differ between shards keep the first value.
  model.metadata.insert(reader->metadata().begin(), reader->metadata().end());
  model.files.push_back(std::move(reader));
  return absl::OkStatus();
}

absl::Status LoadIndex(const json& index, Model& model) {
  const std::string& path = model.path;
  const json& map = index.at("weight_map");
  if (!map.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map is not an object"));
  }
  std::map<std::string, std::set<std::string>> shards;  // file -> names
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": weight_map gives no file name for ", Quoted(name)));
    }
    const std::string shard = file.get<std::string>();
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": weight_map puts ", Quoted(name), " into ", Quoted(shard),
                       ", which is not the name of a file beside it"));
    }
    shards[shard].insert(name);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const auto& [shard, names] : shards) {
    WEFT_ASSIGN_OR_RETURN(auto reader, SafetensorsReader::Open((folder / shard).string()));
    std::size_t known = 0;
    for (const SafetensorsEntry& entry : reader->entries()) {
      if (names.count(entry.name) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(reader->path(), ": tensor ",
                                                       Quoted(entry.name),
                                                       " is not assigned to this file by ", path));
      }
      ++known;
    }
    if (known != names.size()) {
      for (const std::string& name : names) {
        const auto& entries = reader->entries();
        if (std::none_of(entries.begin(), entries.end(),
                         [&](const SafetensorsEntry& entry) { return entry.name == name; })) {
          return absl::InvalidArgumentError(absl::StrCat(reader->path(), ": tensor ", Quoted(name),
                                                         " is missing, ", path, " puts it here"));
        }
      }
    }
    WEFT_RETURN_IF_ERROR(AddTensors(std::move(reader), model));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Model> LoadModel(const std::string& path) {
  Model model;
  model.path = path;
  if (std::filesystem::path(path).extension() == ".json") {
    WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    WEFT_ASSIGN_OR_RETURN(const json value, ParseJson(text, path));
    if (value.is_object() && value.contains("weight_map")) {
      WEFT_RETURN_IF_ERROR(LoadIndex(value, model));
    } else if (value.is_object() && value.contains("matrices")) {
      WEFT_ASSIGN_OR_RETURN(model.tensors, ParseManifest(text, path));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": neither a safetensors index (weight_map) nor a shape manifest (matrices)"));
    }
  } else {
    WEFT_ASSIGN_OR_RETURN(auto reader, SafetensorsReader::Open(path));
    WEFT_RETURN_IF_ERROR(AddTensors(std::move(reader), model));
  }
  std::stable_sort(model.tensors.begin(), model.tensors.end(),
                   [](const ModelTensor& a, const ModelTensor& b) { return a.layer < b.layer; });
  return model;
}

int LayerOf(std::string_view name) {
  constexpr std::size_t kMostDigits = 6;
  std::size_t begin = 0;
  while (begin <= name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() <= kMostDigits &&
        part.find_first_not_of("0123456789") == std::string_view::npos) {
      int number = 0;
      for (const char digit : part) number = number * 10 + (digit - '0');
      return number + 1;
    }
    begin = end + 1;
  }
  return 0;
}

std::string ShapeText(absl::Span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace weft::tool
