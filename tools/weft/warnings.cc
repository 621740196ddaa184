#include "tools/weft/warnings.h"

#include <algorithm>

#include "tools/weft/visible.h"

namespace weft::tool {

std::vector<PlanWarning> WarningsOf(const Plan& plan) {
  std::vector<PlanWarning> warnings;
  for (const PlanMatrix& matrix : plan.matrices) {
    for (const std::string& text : matrix.warnings) {
      auto at = std::find_if(warnings.begin(), warnings.end(),
                             [&](const PlanWarning& known) { return known.text == text; });
      if (at == warnings.end()) at = warnings.insert(at, {text, {}});
      at->matrices.push_back(matrix.name);
    }
  }
  return warnings;
}

void PrintWarnings(const Plan& plan, std::ostream& out) {
  for (const PlanWarning& warning : WarningsOf(plan)) {
    out << "warning: " << Visible(warning.matrices.front());
    if (warning.matrices.size() > 1) out << " and " << warning.matrices.size() - 1 << " more";
    out << ": " << warning.text << "\n";
  }
}

}  // namespace weft::tool
