#include "runtime/safetensors/writer.h"

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
namespace safetensors {
namespace {

using Json = nlohmann::ordered_json;

std::string SubjectOf(const std::string& path, const std::string& name) {
  return absl::StrCat("cannot write ", path, ": tensor ", Printable(name));
}

absl::Status WrongSize(const std::string& path, const TensorSource& source, std::uint64_t has,
                       std::uint64_t needs) {
  return absl::InvalidArgumentError(
      absl::StrCat(SubjectOf(path, source.name), " has ", has, " bytes where ", source.dtype, " [",
                   absl::StrJoin(source.shape, ", "), "] needs ", needs));
}

// Bytes of each tensor.
absl::StatusOr<std::vector<std::uint64_t>> CheckTensors(const std::string& path,
                                                        const std::vector<TensorSource>& sources) {
  std::set<std::string> names;
  std::vector<std::uint64_t> sizes;
  for (const TensorSource& source : sources) {
    const std::string subject = SubjectOf(path, source.name);
    if (source.name == kMetadataKey) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has the name that the format keeps for its metadata"));
    }
    if (!names.insert(source.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(subject, " is given twice"));
    }
    const auto bytes = BytesOf(source.dtype, source.shape);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(subject, " ", bytes.status().message()));
    }
    sizes.push_back(static_cast<std::uint64_t>(*bytes));
  }
  return sizes;
}

// The header's text, padded so that the data begin at a multiple of 8.
absl::StatusOr<std::string> HeaderText(const std::string& path,
                                       const std::vector<TensorSource>& sources,
                                       const std::vector<std::uint64_t>& sizes,
                                       const std::vector<std::size_t>& order,
                                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  // Appended as pairs: ordered_json looks for an equal key on every insertion, which is quadratic.
  auto& members = header.get_ref<Json::object_t&>();
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    Json entry = Json::object();
    entry["dtype"] = sources[i].dtype;
    entry["shape"] = sources[i].shape;
    entry["data_offsets"] = {offset, offset + sizes[i]};
    offset += sizes[i];
    members.push_back({sources[i].name, std::move(entry)});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error&) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": a name or a metadata text is not UTF-8"));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kLargestHeader) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": a header of ",
                                                   text.size(),
                                                   " bytes is beyond the format's 100 MB"));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::uint64_t> WriteFrom(const std::string& path,
                                        const std::vector<TensorSource>& sources,
                                        const std::map<std::string, std::string>& metadata) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> sizes, CheckTensors(path, sources));
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return *SafetensorsElementBytes(sources[a].dtype) > *SafetensorsElementBytes(sources[b].dtype);
  });
  WEFT_ASSIGN_OR_RETURN(const std::string text, HeaderText(path, sources, sizes, order, metadata));
  const std::uint64_t length = text.size();

  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  WEFT_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(&length, 1))));
  WEFT_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(text))));
  std::uint64_t bytes = sizeof(length) + text.size();
  for (const std::size_t i : order) {
    std::uint64_t written = 0;
    const auto put = [&](absl::Span<const std::byte> part) {
      written += part.size();
      return file->Write(part);
    };
    WEFT_RETURN_IF_ERROR(sources[i].write(put));
    if (written != sizes[i]) {
      return WrongSize(path, sources[i], written, sizes[i]);
    }
    bytes += written;
  }
  WEFT_RETURN_IF_ERROR(file->Commit());
  return bytes;
}

}  // namespace safetensors

absl::Status WriteSafetensors(const std::string& path,
                              const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<safetensors::TensorSource> sources;
  sources.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) {
    sources.push_back({tensor.name, tensor.dtype, tensor.shape,
                       [data = tensor.data](const auto& put) { return put(data); }});
  }
  // Before anything is written.
  WEFT_ASSIGN_OR_RETURN(const auto sizes, safetensors::CheckTensors(path, sources));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == tensors[i].data.size()) continue;
    return safetensors::WrongSize(path, sources[i], tensors[i].data.size(), sizes[i]);
  }
  return safetensors::WriteFrom(path, sources, metadata).status();
}

}  // namespace weft
