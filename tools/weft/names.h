// What tables call things. A plan speaks of matrices as they are registered and of rules by kind; a
// user knows tensors as the file has them, and Muon and AdamW.
#pragma once

#include <string>

#include "tools/weft/model.h"
#include "weft/plan.h"

namespace weft::tool {

// "768 x 2304", "8 x 4 x 3"; "scalar" without extents.
std::string ShapeName(const ModelTensor& tensor);
// The file's, and what the ranks hold it in where that is another: "F32", "F64 as f32".
std::string DtypeName(const ModelTensor& tensor, DType held);
// The tool registers AdamW for what a plan calls elementwise.
std::string RuleName(RuleKind rule);
std::string KindName(OpKind kind);
std::string PathName(const std::string& path);

}  // namespace weft::tool
