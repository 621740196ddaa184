// What a plan warns of, for people: each text once, however many matrices it is about.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "weft/plan.h"

namespace weft::tool {

struct PlanWarning {
  std::string text;
  std::vector<std::string> matrices;  // names, in the plan's order
};

// Distinct texts, in the order of their first matrices.
std::vector<PlanWarning> WarningsOf(const Plan& plan);

// A line for each: "warning: h.0.w and 11 more: segments [2,2,1] are unsafe ...".
void PrintWarnings(const Plan& plan, std::ostream& out);

}  // namespace weft::tool
