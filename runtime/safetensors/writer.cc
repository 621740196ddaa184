#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "runtime/safetensors/atomic_file.h"
#include "runtime/safetensors/header.h"
#include "weft/safetensors.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

absl::Status CheckTensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors) {
  std::set<std::string> names;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::string subject =
        absl::StrCat("cannot write ", path, ": tensor ", safetensors::Printable(tensor.name));
    if (tensor.name == safetensors::kMetadataKey) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has the name that the format keeps for its metadata"));
    }
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(subject, " is given twice"));
    }
    const auto bytes = safetensors::BytesOf(tensor.dtype, tensor.shape);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(subject, " ", bytes.status().message()));
    }
    if (static_cast<std::uint64_t>(*bytes) != tensor.data.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has ", tensor.data.size(), " bytes where ", tensor.dtype, " [",
                       absl::StrJoin(tensor.shape, ", "), "] needs ", *bytes));
    }
  }
  return absl::OkStatus();
}

// The header's text, padded so that the data begin at a multiple of 8.
absl::StatusOr<std::string> HeaderText(const std::string& path,
                                       const std::vector<SafetensorsTensor>& tensors,
                                       const std::vector<std::size_t>& order,
                                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[safetensors::kMetadataKey] = metadata;
  // Appended as pairs: ordered_json looks for an equal key on every insertion, which is quadratic.
  auto& members = header.get_ref<Json::object_t&>();
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const SafetensorsTensor& tensor = tensors[i];
    Json entry = Json::object();
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + tensor.data.size()};
    offset += tensor.data.size();
    members.push_back({tensor.name, std::move(entry)});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error&) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": a name or a metadata text is not UTF-8"));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > safetensors::kLargestHeader) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": a header of ",
                                                   text.size(),
                                                   " bytes is beyond the format's 100 MB"));
  }
  return text;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path,
                              const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  WEFT_RETURN_IF_ERROR(CheckTensors(path, tensors));
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return *SafetensorsElementBytes(tensors[a].dtype) > *SafetensorsElementBytes(tensors[b].dtype);
  });
  WEFT_ASSIGN_OR_RETURN(const std::string text, HeaderText(path, tensors, order, metadata));
  const std::uint64_t length = text.size();

  WEFT_ASSIGN_OR_RETURN(const auto file, safetensors::AtomicFile::Create(path));
  WEFT_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(&length, 1))));
  WEFT_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(text))));
  for (const std::size_t i : order) WEFT_RETURN_IF_ERROR(file->Write(tensors[i].data));
  return file->Commit();
}

}  // namespace weft
