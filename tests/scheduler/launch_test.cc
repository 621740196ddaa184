#include "weft/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Map = std::map<std::string, std::string>;

absl::StatusOr<Launch> Parse(const Map& map) {
  return ParseLaunch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = map.find(name);
    if (found == map.end()) return std::nullopt;
    return found->second;
  });
}

Map Torchrun(int rank, int world, int local_rank, int local) {
  return {{"RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(world)},
          {"LOCAL_RANK", absl::StrCat(local_rank)},
          {"LOCAL_WORLD_SIZE", absl::StrCat(local)}};
}

TEST(Launch, ReadsEachLauncher) {
  const auto torch = Parse(Torchrun(5, 8, 1, 4));
  ASSERT_TRUE(torch.ok()) << torch.status();
  EXPECT_EQ(torch->rank, 5);
  EXPECT_EQ(torch->grid, (ProcessGrid{2, 4}));
  EXPECT_EQ(torch->launcher, "torchrun");

  const auto mpi = Parse({{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "6"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(mpi.ok()) << mpi.status();
  EXPECT_EQ(mpi->rank, 3);
  EXPECT_EQ(mpi->grid, (ProcessGrid{3, 2}));
  EXPECT_EQ(mpi->launcher, "Open MPI");

  for (const auto& [name, text] : Map{{"SLURM_NTASKS_PER_NODE", "8"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "8(x4)"},
                                      {"SLURM_TASKS_PER_NODE", "8(x4)"}}) {
    const auto slurm = Parse(
        {{"SLURM_PROCID", "31"}, {"SLURM_NTASKS", "32"}, {"SLURM_LOCALID", "7"}, {name, text}});
    ASSERT_TRUE(slurm.ok()) << slurm.status();
    EXPECT_EQ(slurm->rank, 31);
    EXPECT_EQ(slurm->grid, (ProcessGrid{4, 8}));
    EXPECT_EQ(slurm->launcher, "Slurm");
  }
}

TEST(Launch, TorchrunInsideAnotherLauncherCounts) {
  Map map = Torchrun(1, 2, 1, 2);
  map.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(Parse(map)->launcher, "torchrun");
}

TEST(Launch, NoLauncherIsNotFound) {
  EXPECT_EQ(Parse({{"WORLD_SIZE", "2"}}).status().code(), absl::StatusCode::kNotFound);
}

TEST(Launch, ErrorsNameTheVariable) {
  const auto refusal = [](Map map, const std::string& name, const std::string& value) {
    if (value.empty()) {
      map.erase(name);
    } else {
      map[name] = value;
    }
    const absl::Status status = Parse(map).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const Map good = Torchrun(5, 8, 1, 4);
  for (const char* name : {"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    EXPECT_THAT(refusal(good, name, ""), AllOf(HasSubstr(name), HasSubstr("not set")));
  }
  for (const char* bad : {"x", "-1", "1.5", "99999999999", " "}) {
    EXPECT_THAT(refusal(good, "WORLD_SIZE", bad), AllOf(HasSubstr("WORLD_SIZE"), HasSubstr(bad)));
  }
  EXPECT_THAT(refusal(good, "RANK", "8"), AllOf(HasSubstr("RANK is 8"), HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(refusal(good, "LOCAL_WORLD_SIZE", "3"), HasSubstr("equally many"));
  EXPECT_THAT(refusal(good, "LOCAL_RANK", "2"), HasSubstr("node by node"));
  const Map slurm = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "12"}, {"SLURM_LOCALID", "0"}};
  EXPECT_THAT(refusal(slurm, "SLURM_TASKS_PER_NODE", "8,4"), HasSubstr("8,4"));
  EXPECT_THAT(refusal(slurm, "SLURM_TASKS_PER_NODE", "8(x1),4"), HasSubstr("8(x1),4"));
}

// Every rank of a grid that is numbered node by node finds itself.
RC_GTEST_PROP(Launch, EveryRankFindsItsPlace, ()) {
  const ProcessGrid grid{*rc::gen::inRange(1, 20), *rc::gen::inRange(1, 9)};
  const int rank = *rc::gen::inRange(0, grid.size());
  const auto launch = Parse(Torchrun(rank, grid.size(), grid.local_of(rank), grid.ranks_per_node));
  RC_ASSERT(launch.ok());
  RC_ASSERT(launch->rank == rank);
  RC_ASSERT(launch->grid == grid);
}

}  // namespace
}  // namespace weft
