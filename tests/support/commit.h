// A runtime with all matrices of a rank's model, committed.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft::testing {

// Every matrix gets `rule`. Failures are the calling test's.
inline std::unique_ptr<Runtime> Commit(const RuntimeOptions& options, Rank rank, RankModel& model,
                                       const Rule& rule = MuonOptions{}) {
  auto runtime = Runtime::Create(options, rank.device, rank.transport);
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  for (std::size_t m = 0; m < model.size(); ++m) {
    EXPECT_TRUE((*runtime)->AddMatrix(model.Spec(m, rule)).ok());
  }
  const absl::Status status = (*runtime)->Commit();
  EXPECT_TRUE(status.ok()) << status;
  return *std::move(runtime);
}

}  // namespace weft::testing
