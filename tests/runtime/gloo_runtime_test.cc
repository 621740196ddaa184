// Whole steps over real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kSize = 4;

// A fresh directory, removed at the end.
class Directory {
 public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "weft-gloo-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Directory() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

struct Ended {
  int wait_status;
  std::string out;
};

// Starts all ranks and waits until all have ended.
std::vector<Ended> RunProcesses(const std::string& mode) {
  const Directory directory;
  fs::create_directory(directory / "store");
  std::vector<pid_t> processes(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    std::vector<std::string> arguments = {WEFT_GLOO_WORKER,
                                          std::to_string(rank),
                                          std::to_string(kSize),
                                          directory / "store",
                                          mode,
                                          directory / ("out" + std::to_string(rank))};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(
        posix_spawn(&processes[rank], WEFT_GLOO_WORKER, nullptr, nullptr, argv.data(), environ), 0);
  }
  std::vector<Ended> ended(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(waitpid(processes[rank], &ended[rank].wait_status, 0), processes[rank]);
    std::ifstream file(directory / ("out" + std::to_string(rank)), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    ended[rank].out = text.str();
  }
  return ended;
}

// The threads take the direct form of all collectives.
void ExpectWhatThreadsGet(const std::vector<Ended>& processes) {
  const ProcessGrid grid{2, 2};
  testing::RunWorld({.grid = grid}, [&](testing::Rank rank) {
    testing::RankModel model({{16, 24}, {24, 16}, {16, 16}, {8, 40}}, Layout::kReplicated,
                             GradientKind::kLocal, rank.rank, kSize, 11);
    auto runtime = Runtime::Create(testing::OptionsFor(grid), rank.device, rank.transport);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE((*runtime)->AddMatrix(model.Spec(m, MuonOptions{})).ok());
    }
    ASSERT_TRUE((*runtime)->Commit().ok());
    for (int step = 0; step < 3; ++step) {
      for (std::size_t m = 0; m < model.size(); ++m) {
        const std::vector<float> gradient = model.Gradient(m, step);
        ASSERT_TRUE((*runtime)
                        ->Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradient.data()})
                        .ok());
      }
      ASSERT_TRUE((*runtime)->Step().ok());
    }
    ASSERT_TRUE((*runtime)->WaitForStep().ok());
    std::string bytes;
    for (const auto& weight : model.weights()) {
      bytes.append(reinterpret_cast<const char*>(weight.data()), weight.size() * sizeof(float));
    }
    EXPECT_TRUE(WIFEXITED(processes[rank.rank].wait_status));
    EXPECT_EQ(WEXITSTATUS(processes[rank.rank].wait_status), 0);
    EXPECT_TRUE(processes[rank.rank].out == bytes) << "rank " << rank.rank;
  });
}

TEST(GlooRuntime, FourProcessesEqualFourThreadsBitForBit) {
  ExpectWhatThreadsGet(RunProcesses("run"));
}

TEST(GlooRuntime, CollectivesInSplitFormChangeNoBit) {
  ExpectWhatThreadsGet(RunProcesses("run-split"));
}

TEST(GlooRuntime, PairsOfCollectivesChangeNoBit) {
  ExpectWhatThreadsGet(RunProcesses("run-paired"));
}

class KilledRank : public ::testing::TestWithParam<std::string> {};

// The others return within the deadline (10 s in the worker) + 5 s, naming the dead rank.
TEST_P(KilledRank, IsNamedByAllOthersInTime) {
  const std::vector<Ended> ended = RunProcesses(GetParam());
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == 2) {
      EXPECT_TRUE(WIFSIGNALED(ended[rank].wait_status)) << "the victim lives";
      continue;
    }
    ASSERT_TRUE(WIFEXITED(ended[rank].wait_status));
    ASSERT_EQ(WEXITSTATUS(ended[rank].wait_status), 0) << "rank " << rank;
    std::istringstream text(ended[rank].out);
    double seconds = 0;
    text >> seconds;
    std::string message;
    std::getline(text, message);
    EXPECT_LE(seconds, 15) << message;
    EXPECT_THAT(message, HasSubstr("rank 2")) << "told by rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, KilledRank, ::testing::Values("die-before", "die-during"),
                         [](const auto& mode) {
                           return mode.param == "die-before" ? "BeforeTheStep" : "DuringTheStep";
                         });

}  // namespace
}  // namespace weft
