// Ranks that die or stop as processes do.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/collectives/world.h"
#include "weft/clock.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// A running collectives_gloo_rank. Killed and reaped on destruction.
class RankProcess {
 public:
  explicit RankProcess(std::vector<std::string> arguments) {
    int to_child[2];
    int from_child[2];
    EXPECT_EQ(::pipe2(to_child, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from_child, O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), WEFT_GLOO_RANK_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_child[0], STDIN_FILENO);
      ::dup2(from_child[1], STDOUT_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    in_ = to_child[1];
    out_ = ::fdopen(from_child[0], "r");
  }
  ~RankProcess() {
    Signal(SIGKILL);
    Reap();
    ::close(in_);
    std::fclose(out_);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  std::string ReadLine() {
    std::string line;
    for (int c = std::fgetc(out_); c != EOF && c != '\n'; c = std::fgetc(out_)) {
      line += static_cast<char>(c);
    }
    return line;
  }
  void Go() { EXPECT_EQ(::write(in_, "\n", 1), 1); }
  void Signal(int signal) {
    if (pid_ > 0) ::kill(pid_, signal);
  }
  // Blocks until the process has ended; its exit status.
  int Reap() {
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  std::FILE* out_ = nullptr;
};

constexpr int kRanks = 4;
constexpr int kVictim = 2;

std::vector<std::unique_ptr<RankProcess>> Start(const std::string& store, absl::Duration deadline,
                                                const std::string& kind, int root) {
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<RankProcess>(std::vector<std::string>{
        store, std::to_string(rank), std::to_string(kRanks),
        std::to_string(absl::ToInt64Milliseconds(deadline)), kind, std::to_string(root)}));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->ReadLine(), "ready");
  return ranks;
}

// Every survivor ends by itself within the deadline and five seconds, and names the victim.
void ExpectSurvivorsNameTheVictim(std::vector<std::unique_ptr<RankProcess>>& ranks, Nanos since,
                                  absl::Duration deadline, const std::string& code,
                                  const std::string& operation) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    const std::string status = ranks[rank]->ReadLine();
    const std::string story = ranks[rank]->ReadLine();
    EXPECT_EQ(ranks[rank]->Reap(), 0);
    EXPECT_THAT(status, HasSubstr(absl::StrCat("status: ", code, ":"))) << "rank " << rank;
    EXPECT_THAT(status, HasSubstr("rank 2 in " + operation)) << "rank " << rank;
    EXPECT_THAT(story, HasSubstr("rank 2 in " + operation)) << "rank " << rank;
  }
  EXPECT_LE(Clock::Steady().Now() - since, absl::ToInt64Nanoseconds(deadline + absl::Seconds(5)));
}

// The helper leaves SIGPIPE at its default, so these also show that Weft does not die of it.
TEST(GlooProcesses, ARankKilledBeforeAnOperationIsNamedByTheOthers) {
  const TemporaryFolder store;
  constexpr absl::Duration kDeadline = absl::Seconds(60);
  auto ranks = Start(store.path(), kDeadline, "all-reduce", 0);
  ranks[kVictim]->Signal(SIGKILL);
  ranks[kVictim]->Reap();
  const Nanos since = Clock::Steady().Now();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    ranks[rank]->Go();
    EXPECT_EQ(ranks[rank]->ReadLine(), "going");
  }
  ExpectSurvivorsNameTheVictim(ranks, since, kDeadline, "UNAVAILABLE", "all-reduce");
}

// The deadline is far away, so that only the broken connection can end the wait: also when it
// breaks in the middle of a message.
class KilledDuring : public ::testing::TestWithParam<std::pair<std::string, int>> {};

TEST_P(KilledDuring, IsNamedByTheOthers) {
  const auto& [kind, root] = GetParam();
  const TemporaryFolder store;
  constexpr absl::Duration kDeadline = absl::Minutes(10);
  auto ranks = Start(store.path(), kDeadline, kind, root);
  for (const auto& rank : ranks) rank->Go();
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->ReadLine(), "going");
    EXPECT_EQ(rank->ReadLine(), "running");
  }
  ranks[kVictim]->Signal(SIGKILL);
  const Nanos since = Clock::Steady().Now();
  ExpectSurvivorsNameTheVictim(ranks, since, kDeadline, "UNAVAILABLE", kind);
}

INSTANTIATE_TEST_SUITE_P(GlooProcesses, KilledDuring,
                         ::testing::Values(std::pair{"all-reduce", 0}, std::pair{"broadcast", 2},
                                           std::pair{"broadcast", 0}, std::pair{"gather", 0}));

TEST(GlooProcesses, ARankThatStopsIsNamedWhenTheDeadlinePasses) {
  const TemporaryFolder store;
  constexpr absl::Duration kDeadline = absl::Seconds(5);
  auto ranks = Start(store.path(), kDeadline, "all-reduce", 0);
  ranks[kVictim]->Signal(SIGSTOP);
  const Nanos since = Clock::Steady().Now();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != kVictim) ranks[rank]->Go();
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(ranks[rank]->ReadLine(), "going");
  }
  ExpectSurvivorsNameTheVictim(ranks, since, kDeadline, "DEADLINE_EXCEEDED", "all-reduce");
}

TEST(GlooProcesses, ARankThatStopsDuringAnOperationIsNamedToo) {
  const TemporaryFolder store;
  constexpr absl::Duration kDeadline = absl::Seconds(5);
  auto ranks = Start(store.path(), kDeadline, "all-reduce", 0);
  for (const auto& rank : ranks) rank->Go();
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->ReadLine(), "going");
    EXPECT_EQ(rank->ReadLine(), "running");
  }
  ranks[kVictim]->Signal(SIGSTOP);
  ExpectSurvivorsNameTheVictim(ranks, Clock::Steady().Now(), kDeadline, "DEADLINE_EXCEEDED",
                               "all-reduce");
}

}  // namespace
}  // namespace weft::testing
