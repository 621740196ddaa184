#include "update/segment_advisor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/string_view.h"

namespace weft::update {
namespace {

using base::View;

std::string Text(const std::vector<int>& segments) {
  return absl::StrCat("[", absl::StrJoin(segments, ","), "]");
}

// Plain NS measures the Gram matrix anew in every iteration, so no spurious eigenvalue can grow.
bool IsPlain(const std::vector<int>& segments) {
  return std::all_of(segments.begin(), segments.end(), [](int length) { return length <= 1; });
}

}  // namespace

SegmentAdvisor::Kind SegmentAdvisor::KindOf(const NewtonSchulzOptions& options) {
  return {options.coefficients.triples, options.iterations, options.operand_type};
}

const std::vector<int>& SegmentAdvisor::Choose(const NewtonSchulzOptions& options) {
  const auto [at, is_new] = chosen_.try_emplace(KindOf(options));
  if (is_new) {
    at->second = ChooseSegments(options.coefficients, options.iterations,
                                SpuriousEigenvalue(options.operand_type),
                                LongestSegment(options.operand_type));
  }
  return at->second;
}

const std::string& SegmentAdvisor::Warning(const NewtonSchulzOptions& options) {
  const auto [at, is_new] =
      warnings_.try_emplace({KindOf(options), options.coefficients.name, options.segments});
  if (is_new) at->second = Examine(options);
  return at->second;
}

std::string SegmentAdvisor::Examine(const NewtonSchulzOptions& options) {
  if (IsPlain(options.segments)) return "";  // so is the empty set: what is chosen is safe
  const double epsilon = SpuriousEigenvalue(options.operand_type);
  const SegmentAnalysis asked = AnalyzeSegments(options.coefficients, options.segments, epsilon);
  if (asked.safe) return "";
  std::string text = absl::StrCat(
      "segments ", Text(options.segments), " are unsafe for ", options.coefficients.name, " in ",
      View(Name(options.operand_type)), ": condition ", absl::StrFormat("%.3g", asked.condition),
      ", safe is at most ", SegmentAnalysis::kSafeCondition, "; ");
  const std::vector<int>& safe = Choose(options);
  if (IsPlain(safe)) {
    absl::StrAppend(&text, "plain Newton-Schulz would be safe");
  } else {
    absl::StrAppend(
        &text, Text(safe), " would be safe, with ",
        absl::StrFormat("%.3g", AnalyzeSegments(options.coefficients, safe, epsilon).condition));
  }
  return text;
}

}  // namespace weft::update
