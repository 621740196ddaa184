// The summary of a run, for people and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tools/weft/rank_run.h"
#include "tools/weft/session.h"
#include "tools/weft/verify.h"

namespace weft::tool {

// An updated tensor whose final values are not all finite.
struct NotFinite {
  std::string name;
  std::int64_t count = 0;
  std::int64_t in_model = 0;  // how many were not when the run began
};

void PrintReport(const Session& session, const RunReport& report,
                 const std::optional<VerifyReport>& verify, std::ostream& out);
void PrintReportJson(const Session& session, const RunReport& report,
                     const std::vector<NotFinite>& not_finite,
                     const std::optional<VerifyReport>& verify, std::ostream& out);

}  // namespace weft::tool
