#include "runtime/checkpoint/index.h"

#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "runtime/safetensors/header.h"

namespace weft::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "weft checkpoint";
constexpr std::int64_t kVersion = 1;

// Short: there is one for each tensor and rank.
Json ToJson(const SavedPiece& piece) {
  return Json::array({piece.file, piece.rows.first, piece.rows.rows, piece.checksums});
}

SavedPiece ParsePiece(const Json& json) {
  SavedPiece piece;
  json.at(0).get_to(piece.file);
  json.at(1).get_to(piece.rows.first);
  json.at(2).get_to(piece.rows.rows);
  json.at(3).get_to(piece.checksums);
  return piece;
}

SavedFile ParseFile(const Json& json) {
  SavedFile file;
  json.at("name").get_to(file.name);
  json.at("bytes").get_to(file.bytes);
  return file;
}

Json ToJson(const SavedFile& file) {
  Json json = Json::object();
  json["name"] = file.name;
  json["bytes"] = file.bytes;
  return json;
}

// What an index ends with: the checksum of all text before it.
std::string Ending(std::string_view text) {
  return absl::StrCat(
      ",\n\"crc32\":", Checksum({reinterpret_cast<const std::byte*>(text.data()), text.size()}),
      "}\n");
}

bool HasItsEnding(std::string_view text) {
  const std::size_t begin = text.rfind(",\n\"crc32\"");
  return begin != std::string_view::npos && text.substr(begin) == Ending(text.substr(0, begin));
}

// Empty, or why the pieces are not the whole tensor, each row once.
std::string WrongIn(const SavedTensor& tensor, const Index& index) {
  const auto bytes = safetensors::BytesOf(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return std::string(bytes.status().message());
  if (tensor.shape.empty()) return "has no shape";
  std::int64_t next = 0;
  for (const SavedPiece& piece : tensor.pieces) {
    if (piece.file < 0 || piece.file >= static_cast<std::int64_t>(index.files.size())) {
      return absl::StrCat("lies in file ", piece.file, ", which is not listed");
    }
    if (piece.rows.first != next || piece.rows.rows <= 0 ||
        piece.rows.rows > tensor.shape[0] - next) {
      return absl::StrCat("is not made up by its pieces at row ", next);
    }
    next = piece.rows.end();
    const std::int64_t size = piece.rows.rows * tensor.RowBytes();
    const std::int64_t blocks = (size + index.block_bytes - 1) / index.block_bytes;
    if (static_cast<std::int64_t>(piece.checksums.size()) != blocks) {
      return absl::StrCat("has ", piece.checksums.size(), " checksums for ", blocks, " blocks");
    }
  }
  return next == tensor.shape[0] ? "" : absl::StrCat("ends at row ", next);
}

// A name inside the folder, and nothing that leads out of it.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
}

std::string WrongIn(const Index& index) {
  if (index.block_bytes < 1 || index.block_bytes > kMostBlockBytes) {
    return absl::StrCat("its blocks have ", index.block_bytes, " bytes");
  }
  for (const SavedFile& file : index.files) {
    if (!IsPlainName(file.name)) return absl::StrCat("it lists the file '", file.name, "'");
  }
  std::set<std::string> names;
  for (const SavedTensor& tensor : index.tensors) {
    const std::string subject = absl::StrCat("tensor ", safetensors::Printable(tensor.name));
    if (!names.insert(tensor.name).second) return absl::StrCat(subject, " is listed twice");
    const std::string wrong = WrongIn(tensor, index);
    if (!wrong.empty()) return absl::StrCat(subject, " ", wrong);
  }
  return "";
}

}  // namespace

std::uint32_t Checksum(absl::Span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::map<std::string, std::string> ShardMetadata(const std::string& set, std::int64_t steps) {
  return {{"format", kFormat}, {"set", set}, {"steps", absl::StrCat(steps)}};
}

std::int64_t SavedTensor::RowBytes() const {
  std::int64_t bytes = *SafetensorsElementBytes(dtype);
  for (std::size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
  return bytes;
}

std::string ToText(const Index& index) {
  Json json = Json::object();
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["set"] = index.set;
  json["run"] = ToJson(index.description);
  json["block_bytes"] = index.block_bytes;
  Json& files = json["files"] = Json::array();
  for (const SavedFile& file : index.files) files.push_back(ToJson(file));
  Json& tensors = json["tensors"] = Json::array();
  for (const SavedTensor& tensor : index.tensors) {
    Json entry = Json::object();
    entry["name"] = tensor.name;
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    Json& pieces = entry["pieces"] = Json::array();
    for (const SavedPiece& piece : tensor.pieces) pieces.push_back(ToJson(piece));
    tensors.push_back(std::move(entry));
  }
  std::string text = json.dump();
  text.pop_back();  // its brace
  return text + Ending(text);
}

absl::StatusOr<Index> ParseIndex(std::string_view text, const std::string& path) {
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  if (text.size() > kLargestIndex) {
    return bad(absl::StrCat("an index of ", text.size(), " bytes, more than ", kLargestIndex,
                            "; larger blocks, or fewer ranks that save, make it smaller"));
  }
  Index index;
  Json run;
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) return bad("not the index of a checkpoint of Weft");
    if (json.at("version") != kVersion) {
      return bad(
          absl::StrCat("an index of version ", json.at("version").dump(), ", this is ", kVersion));
    }
    if (!HasItsEnding(text)) return bad("the index is damaged, its checksum does not fit");
    json.at("set").get_to(index.set);
    run = json.at("run");
    json.at("block_bytes").get_to(index.block_bytes);
    for (const Json& file : json.at("files")) index.files.push_back(ParseFile(file));
    for (const Json& entry : json.at("tensors")) {
      SavedTensor& tensor = index.tensors.emplace_back();
      entry.at("name").get_to(tensor.name);
      entry.at("dtype").get_to(tensor.dtype);
      entry.at("shape").get_to(tensor.shape);
      for (const Json& piece : entry.at("pieces")) tensor.pieces.push_back(ParsePiece(piece));
    }
  } catch (const Json::exception& error) {
    return bad(absl::StrCat("not the index of a checkpoint of Weft: ", error.what()));
  }
  const std::string wrong = WrongIn(index);
  if (!wrong.empty()) return bad(wrong);
  WEFT_ASSIGN_OR_RETURN(index.description, ParseDescription(run, path));
  return index;
}

std::string ToText(const ShardReport& report) {
  Json json = Json::object();
  json["file"] = ToJson(report.file);
  Json& pieces = json["pieces"] = Json::array();
  for (const auto& [tensor, piece] : report.pieces) pieces.push_back({tensor, ToJson(piece)});
  return json.dump();
}

absl::Status AddReport(std::string_view text, int rank, Index& index) {
  try {
    const Json json = Json::parse(text);
    SavedFile file = ParseFile(json.at("file"));
    if (file.name.empty()) return absl::OkStatus();
    const auto place = static_cast<std::int32_t>(index.files.size());
    index.files.push_back(std::move(file));
    for (const Json& entry : json.at("pieces")) {
      SavedPiece piece = ParsePiece(entry.at(1));
      piece.file = place;
      std::vector<SavedPiece>& pieces = index.tensors.at(entry.at(0).get<std::size_t>()).pieces;
      // Mostly the last: ranks tell in their order.
      const auto before = std::find_if(
          pieces.rbegin(), pieces.rend(),
          [&](const SavedPiece& other) { return other.rows.first <= piece.rows.first; });
      pieces.insert(before.base(), std::move(piece));
    }
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("what rank ", rank, " tells of its file cannot be read: ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace weft::runtime
