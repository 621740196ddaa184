// A process that ends while it saves leaves the checkpoint before, or the new one. The processes
// are children of a parent without threads.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/runtime/checkpoint_world.h"
#include "tests/support/file_faults.h"
#include "tests/support/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::CheckpointMember;
using testing::CheckpointModel;
using testing::RunMembers;
using testing::Snapshot;

constexpr int kKilled = 128 + SIGKILL;

CheckpointModel Model() {
  CheckpointModel model = {{"a", 8, 6}, {"b", 1, 8, testing::SteadyAdamW()}, {"c", 6, 8}};
  model[0].layout = Layout::kSharded;
  model[2].layout = Layout::kOwned;
  return model;
}

RuntimeOptions Options() {
  RuntimeOptions options = testing::OptionsFor({1, 2});
  options.pass_through = PassThrough::kNever;
  return options;
}

// What `body` returns in a process of its own; 128 or more where a signal ended it.
int InChild(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int code = body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : code);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Trains `steps` steps and saves; ends the process before the step `kill` on a file, where there
// are as many. How many there were.
int TrainAndSave(const std::string& folder, int steps, int kill) {
  std::atomic<int> next{0};
  const testing::WatchedFiles files(folder, [&](const testing::FileStep&) {
    if (next++ == kill) ::kill(::getpid(), SIGKILL);
    return 0;
  });
  RunMembers(Model(), Options(), 1, [&](CheckpointMember& member, int) {
    absl::Status status = member.Train(steps);
    status.Update(member->Save(folder));
    return status;
  });
  return next;
}

std::ptrdiff_t FilesIn(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

// The steps of the checkpoint in `folder`, which has to be whole. Another save leaves nothing of
// those that were broken off.
int Verify(const std::string& folder, std::ptrdiff_t files) {
  int steps = 0;
  Snapshot loaded, straight;
  RunMembers(Model(), Options(), 2, [&](CheckpointMember& member, int rank) {
    absl::Status status = member->Load(folder);
    if (rank == 0) steps = static_cast<int>(member->steps());
    status.Update(member->Save(folder));
    status.Update(member.AddTo(loaded));
    return status;
  });
  EXPECT_EQ(FilesIn(folder), files);
  RunMembers(Model(), Options(), 1, [&](CheckpointMember& member, int) {
    absl::Status status = member.Train(steps);
    status.Update(member.AddTo(straight));
    return status;
  });
  EXPECT_EQ(Snapshot::Difference(straight, loaded), "");
  return steps;
}

TEST(CheckpointKill, TheOneBeforeOrTheNewOneIsWholeWhereverTheProcessEnds) {
  const testing::TemporaryFolder base, other;
  // How many steps on files a save over another takes.
  ASSERT_EQ(InChild([&] { return TrainAndSave(base.path(), 1, -1) > 0 ? 0 : 1; }), 0);
  const std::ptrdiff_t files = FilesIn(base.path());
  int before = 0, after = 0;
  for (int kill = 0;; ++kill) {
    const std::string folder = other / std::to_string(kill);
    fs::copy(base.path(), folder, fs::copy_options::recursive);
    const int code = InChild([&] {
      TrainAndSave(folder, 2, kill);
      return 0;
    });
    ASSERT_TRUE(code == 0 || code == kKilled) << "step " << kill << ": " << code;
    const int steps = InChild([&] { return 10 + Verify(folder, files); }) - 10;
    ASSERT_TRUE(steps == 1 || steps == 2) << "step " << kill << ": " << steps + 10;
    ASSERT_TRUE(after == 0 || steps == 2) << "the old one is back at step " << kill;
    ++(steps == 1 ? before : after);
    fs::remove_all(folder);
    if (code == 0) break;
  }
  std::printf("ended before %d steps on files: %d times the old one, %d times the new one\n",
              before + after - 1, before, after - 1);
  // Of each shard at least: length, header, data, sync, name, sync of the folder.
  EXPECT_GE(before, 12);
  EXPECT_GE(after, 2) << "the folder's sync and removing are left";
}

// What a power cut keeps is only what was synced.
TEST(CheckpointKill, AllOfASetIsSyncedBeforeTheIndexNamesItAndThatBeforeTheOldOneGoes) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(InChild([&] {
              TrainAndSave(folder.path(), 1, -1);
              std::mutex mutex;
              std::vector<testing::FileStep> steps;
              {
                const testing::WatchedFiles files(folder.path(),
                                                  [&](const testing::FileStep& step) {
                                                    const std::lock_guard<std::mutex> lock(mutex);
                                                    steps.push_back(step);
                                                    return 0;
                                                  });
                RunMembers(Model(), Options(), 1, [&](CheckpointMember& member, int) {
                  absl::Status status = member.Train(2);
                  status.Update(member->Save(folder.path()));
                  return status;
                });
              }
              std::set<std::string> dirty;  // files with writes that are not synced
              bool unsynced_names = false;  // names since the folder's last sync
              int shards = 0, committed = 0, removed = 0;
              for (const testing::FileStep& step : steps) {
                const bool index = step.path == folder / "weft-checkpoint.json";
                if (step.call == "write") dirty.insert(step.path);
                if (step.call == "fsync" && dirty.erase(step.path) == 0) unsynced_names = false;
                const bool named = step.path.find(".tmp") == std::string::npos;
                if (step.call == "linkat" && named && !index) {
                  unsynced_names = true;
                  ++shards;
                }
                if (step.call == "rename") {
                  EXPECT_TRUE(index) << step.path;
                  EXPECT_TRUE(dirty.empty()) << *dirty.begin();
                  EXPECT_FALSE(unsynced_names);
                  ++committed;
                  unsynced_names = true;
                }
                const bool old = step.call == "unlink" && named;
                if (!old) continue;
                EXPECT_EQ(committed, 1) << step.path << " goes too early";
                EXPECT_FALSE(unsynced_names) << step.path << " goes before the index is synced";
                ++removed;
              }
              EXPECT_EQ(shards, 2);
              EXPECT_EQ(committed, 1);
              EXPECT_EQ(removed, 2);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace weft
