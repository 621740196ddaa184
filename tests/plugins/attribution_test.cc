// A runtime tells the profiler what its thread works for.
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "plugins/nccl/context.h"
#include "tests/nvtx/training.h"

namespace weft::testing {
namespace {

TEST(Attribution, ARunningOpIsThatOfTheThread) {
  std::mutex mutex;
  std::vector<weft_nccl_context> seen;
  std::set<std::string> names;
  TrainingHooks hooks;
  hooks.in_rule = [&](const RuleContext&) {
    weft_nccl_context context;
    const std::lock_guard<std::mutex> lock(mutex);
    ASSERT_EQ(weft_nccl_context_get(&context), 1);
    seen.push_back(context);
    names.insert(context.name);
  };
  hooks.after_step = [](int, int) {
    weft_nccl_context context;
    EXPECT_EQ(weft_nccl_context_get(&context), 0);
  };
  const std::vector<TrainedRank> ranks = Train(Trainings().front(), hooks);
  ASSERT_FALSE(seen.empty());
  std::set<std::int64_t> steps;
  for (const weft_nccl_context& context : seen) {
    steps.insert(context.step);
    const Plan& plan = ranks.at(static_cast<std::size_t>(context.rank)).plan;
    const Op& op = plan.ops.at(static_cast<std::size_t>(context.op));
    EXPECT_EQ(op.kind, OpKind::kCustom);
    EXPECT_EQ(op.matrix, context.matrix);
    EXPECT_EQ(context.matrix, kTrainedLayers - 1);
  }
  EXPECT_EQ(steps.size(), static_cast<std::size_t>(kTrainedSteps));
  EXPECT_EQ(names, std::set<std::string>{TrainedMatrix(kTrainedLayers - 1)});
}

}  // namespace
}  // namespace weft::testing
