#include "tools/weft/gradients.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/weft/file_values.h"
#include "tools/weft/json_file.h"
#include "tools/weft/numbers.h"
#include "tools/weft/seeded.h"
#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

constexpr double kSeededDeviation = 0.01;

}  // namespace

absl::StatusOr<Gradients> Gradients::FromFile(const std::string& path, const Model& model) {
  Gradients gradients;
  WEFT_ASSIGN_OR_RETURN(gradients.file_, SafetensorsReader::Open(path));
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < model.tensors.size(); ++i) index[model.tensors[i].name] = i;
  gradients.entries_.assign(model.tensors.size(), nullptr);
  for (const SafetensorsEntry& entry : gradients.file_->entries()) {
    const std::string subject = absl::StrCat(path, ": gradient ", Quoted(entry.name));
    const auto found = index.find(entry.name);
    if (found == index.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has no tensor of that name in ", model.path));
    }
    const ModelTensor& tensor = model.tensors[found->second];
    if (entry.shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(subject, " has shape ", ShapeText(entry.shape),
                                                     ", the tensor in ", model.path, " has ",
                                                     ShapeText(tensor.shape)));
    }
    if (entry.dtype != tensor.dtype) {
      return absl::InvalidArgumentError(absl::StrCat(subject, " has dtype ", entry.dtype,
                                                     ", the tensor in ", model.path, " has ",
                                                     tensor.dtype));
    }
    if (!FileFloatOf(entry.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has dtype ", entry.dtype, ", which no update is defined for"));
    }
    gradients.entries_[found->second] = &entry;
  }
  return gradients;
}

Gradients Gradients::Seeded(std::uint64_t seed) {
  Gradients gradients;
  gradients.seed_ = seed;
  return gradients;
}

bool Gradients::Has(std::size_t tensor) const {
  return file_ == nullptr || entries_[tensor] != nullptr;
}

absl::Status Gradients::CheckValues() const {
  for (const SafetensorsEntry* entry : entries_) {
    if (entry == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(const ValueCounts counts, CountValues(*file_, *entry));
    const std::string subject = absl::StrCat(file_->path(), ": gradient ", Quoted(entry->name));
    if (counts.not_finite > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has ", counts.not_finite, " values that are not finite"));
    }
    if (counts.too_large > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          subject, " has ", counts.too_large, " values beyond fp32, which it is computed in"));
    }
  }
  return absl::OkStatus();
}

absl::Status Gradients::Fill(const ModelTensor& model_tensor, std::size_t tensor, std::int64_t step,
                             int rank, void* to) const {
  if (file_ != nullptr) {
    return ReadValues(*file_, *entries_[tensor], 0, model_tensor.elements, to);
  }
  SeededValues(seed_, "gradient", model_tensor.name, step, rank, kSeededDeviation)
      .Fill(0, model_tensor.elements, WorkingType(*FileFloatOf(model_tensor.dtype)), to);
  return absl::OkStatus();
}

}  // namespace weft::tool
