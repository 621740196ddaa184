// How messages, traces and tools speak of an op.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "weft/plan.h"

namespace weft::runtime {

// "'w'", or "'w' and 3 more"; empty for an op of no matrix.
inline std::string NamesOf(const Plan& plan, const Op& op) {
  if (op.matrix < 0) return "";
  const std::string first = absl::StrCat("'", plan.matrices[op.matrix].name, "'");
  const std::size_t count = MatricesOf(plan, op).size();
  return count == 1 ? first : absl::StrCat(first, " and ", count - 1, " more");
}

// "the step" or "matrix 'w'".
inline std::string SubjectOf(const Plan& plan, const Op& op) {
  return op.matrix < 0 ? "the step" : absl::StrCat("matrix ", NamesOf(plan, op));
}

// "w", "w and 3 more" or "step": as tools name it.
inline std::string TitleOf(const Plan& plan, const Op& op) {
  if (op.matrix < 0) return "step";
  const std::size_t count = MatricesOf(plan, op).size();
  const std::string& first = plan.matrices[op.matrix].name;
  return count == 1 ? first : absl::StrCat(first, " and ", count - 1, " more");
}

}  // namespace weft::runtime
