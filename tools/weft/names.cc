#include "tools/weft/names.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/weft/numbers.h"

namespace weft::tool {

std::string ShapeName(const ModelTensor& tensor) {
  return tensor.shape.empty() ? "scalar" : absl::StrJoin(tensor.shape, " x ");
}

std::string DtypeName(const ModelTensor& tensor, DType held) {
  if (FileFloatOf(tensor.dtype) != FileFloat::kF64) return tensor.dtype;
  return absl::StrCat(tensor.dtype, " as ", std::string(Name(held)));
}

std::string RuleName(RuleKind rule) { return rule == RuleKind::kMuon ? "Muon" : "AdamW"; }

std::string KindName(OpKind kind) {
  return kind == OpKind::kElementwise ? "adamw" : std::string(Name(kind));
}

std::string PathName(const std::string& path) {
  return absl::StrReplaceAll(path, {{"element-wise", "AdamW"}});
}

}  // namespace weft::tool
