// The fixed messages of ranges that a tool shows (base/annotate.h); docs/nsight.md lists them.
#pragma once

#include "base/annotate.h"

namespace weft::runtime {

// The number is the world's size.
inline constinit const base::Message kCommit(base::Category::kPlan, "commit");
inline constinit const base::Message kCompare(base::Category::kPlan, "compare registrations");
inline constinit const base::Message kBuildPlan(base::Category::kPlan, "build plan");
inline constinit const base::Message kConnect(base::Category::kPlan, "create communicators");
inline constinit const base::Message kPrepare(base::Category::kPlan, "prepare");
inline constinit const base::Message kWarmUp(base::Category::kPlan, "warm up");
// The step that is waited for.
inline constinit const base::Message kWaitForStep(base::Category::kWait, "wait for step");
inline constinit const base::Message kWaitForJob(base::Category::kWait, "wait for job");
// The layer.
inline constinit const base::Message kWaitForLayer(base::Category::kWait, "wait for layer");
inline constinit const base::Message kParameterNeeded(base::Category::kWait, "parameter needed");
// This rank.
inline constinit const base::Message kFailure(base::Category::kWatchdog, "failure");

}  // namespace weft::runtime
