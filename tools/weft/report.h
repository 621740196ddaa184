// The summary of a run, for people and as JSON.
#pragma once

#include <optional>
#include <ostream>

#include "tools/weft/rank_run.h"
#include "tools/weft/session.h"
#include "tools/weft/verify.h"

namespace weft::tool {

void PrintReport(const Session& session, const RunReport& report,
                 const std::optional<VerifyReport>& verify, std::ostream& out);
void PrintReportJson(const Session& session, const RunReport& report,
                     const std::optional<VerifyReport>& verify, std::ostream& out);

}  // namespace weft::tool
