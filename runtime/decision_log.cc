#include "runtime/decision_log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/string_view.h"
#include "runtime/op_text.h"

namespace weft::runtime {
namespace {

using base::View;

absl::string_view What(Decision::What what) {
  switch (what) {
    case Decision::What::kSubmitted:
      return "submitted";
    case Decision::What::kIssued:
      return "issued";
    case Decision::What::kStarted:
      return "started";
    case Decision::What::kFinished:
      return "finished";
    case Decision::What::kFailed:
      return "failed";
  }
  return "?";
}

}  // namespace

void DecisionLog::Add(const Decision& decision) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ring_[added_++ % ring_.size()] = decision;
}

std::vector<Decision> DecisionLog::Entries() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Decision> entries;
  const std::size_t kept = std::min(added_, ring_.size());
  entries.reserve(kept);
  for (std::size_t i = added_ - kept; i < added_; ++i) entries.push_back(ring_[i % ring_.size()]);
  return entries;
}

std::string Describe(const std::vector<Decision>& decisions, const Plan& plan, int rank) {
  std::string text;
  const Nanos origin = decisions.empty() ? 0 : decisions.front().time;
  for (const Decision& decision : decisions) {
    absl::StrAppendFormat(&text, "%+.3f ms step %d ", 1e-6 * (decision.time - origin),
                          decision.step);
    if (decision.op < 0) {
      absl::StrAppend(&text, What(decision.what), " '", plan.matrices[decision.matrix].name, "'\n");
      continue;
    }
    const Op& op = plan.ops[decision.op];
    absl::StrAppend(&text, View(Name(decision.lane)), " ", What(decision.what), " ",
                    View(Name(op.kind)));
    if (op.matrix >= 0) absl::StrAppend(&text, " ", NamesOf(plan, op));
    absl::StrAppend(&text, " ", decision.bytes, " bytes op ", decision.op);
    if (IsCollective(op.kind)) {
      const Group& group = plan.groups[op.group];
      absl::StrAppend(&text, " on '", group.PartName(group.PartOf(rank)), "'");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace weft::runtime
