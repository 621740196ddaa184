// Loads that are refused change nothing, and say in a sentence what is wrong with which file or
// matrix; saves that fail leave the checkpoint before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "runtime/checkpoint/index.h"
#include "tests/runtime/checkpoint_world.h"
#include "tests/support/file_faults.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_folder.h"
#include "weft/log.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::CheckpointMember;
using testing::CheckpointModel;
using ::testing::HasSubstr;
using testing::RunMembers;
using testing::Snapshot;
using testing::TemporaryFolder;

CheckpointModel Model() {
  CheckpointModel model = {{"wq", 24, 16, MuonOptions{}},
                           {"norm", 1, 40, testing::SteadyAdamW()},
                           {"own", 4, 5, testing::StepwiseRule()}};
  model[0].layout = Layout::kSharded;
  return model;
}

RuntimeOptions Options() {
  RuntimeOptions options = testing::OptionsFor({1, 2});
  options.pass_through = PassThrough::kNever;
  return options;
}

void TrainAndSave(const std::string& folder, int steps, std::uint64_t seed = 1) {
  RunMembers(Model(), Options(), seed, [&](CheckpointMember& member, int) {
    absl::Status status = member.Train(steps);
    SaveOptions options;
    options.block_bytes = 64;
    status.Update(member->Save(folder, options));
    return status;
  });
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What loading comes to, alike on all ranks. Afterwards a model that is fresh still is.
absl::Status Refusal(const CheckpointModel& model, const std::string& folder,
                     const LoadOptions& options = {}) {
  std::mutex mutex;
  std::vector<absl::Status> outcomes;
  Snapshot before, after;
  RunMembers(model, Options(), 3, [&](CheckpointMember& member, int) {
    absl::Status status = member.AddTo(before, /*delivered=*/false);
    absl::Status loaded = member->Load(folder, options);
    status.Update(member.AddTo(after, /*delivered=*/false));
    EXPECT_TRUE(loaded.ok() || member->steps() == 0);
    const std::lock_guard<std::mutex> lock(mutex);
    outcomes.push_back(std::move(loaded));
    return status;
  });
  EXPECT_EQ(outcomes[0], outcomes[1]);
  if (!outcomes[0].ok()) {
    EXPECT_EQ(Snapshot::Difference(before, after), "");
  }
  return outcomes[0];
}

struct Change {
  std::string what;
  std::function<void(CheckpointModel&)> change;
  std::string sentence;
};

template <typename Options>
Options& RuleOf(CheckpointModel& model, std::size_t m) {
  return std::get<Options>(model[m].rule);
}

TEST(CheckpointRefusal, ModelsThatDifferAreRefusedNamingTheMatrix) {
  const TemporaryFolder folder;
  TrainAndSave(folder.path(), 1);
  const Change changes[] = {
      {"missing",
       [](CheckpointModel& m) {
         m.push_back({"wk", 4, 4});
       },
       "does not have the registered matrix 'wk'"},
      {"extra", [](CheckpointModel& m) { m.pop_back(); },
       "has the matrix 'own', which is not registered"},
      {"rows", [](CheckpointModel& m) { m[0].rows = 23; },
       "matrix 'wq' is 24 x 16 there and registered as 23 x 16"},
      {"padding for rows", [](CheckpointModel& m) { m[0].rows = 23, m[0].padding_rows = 1; },
       "matrix 'wq' is 24 x 16 there and registered as 23 x 16"},
      {"dtype", [](CheckpointModel& m) { m[1].dtype = DType::kBF16; },
       "matrix 'norm' has dtype f32 there and is registered with bf16"},
      {"rule", [](CheckpointModel& m) { m[1].rule = MuonOptions{}; },
       "matrix 'norm' has the rule AdamW there and is registered with Muon"},
      {"state", [](CheckpointModel& m) { m[2].rule = testing::StepwiseRule(2); },
       "matrix 'own' has state_bytes_per_element 4 there and is registered with 8"},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.what);
    CheckpointModel model = Model();
    change.change(model);
    const absl::Status refusal = Refusal(model, folder.path());
    EXPECT_TRUE(absl::IsInvalidArgument(refusal)) << refusal;
    EXPECT_THAT(std::string(refusal.message()), HasSubstr(change.sentence));
    EXPECT_THAT(std::string(refusal.message()), HasSubstr(folder.path()));
  }
  // Of state with another size no option makes something.
  CheckpointModel model = Model();
  model[2].rule = testing::StepwiseRule(2);
  LoadOptions options;
  options.accept_other_options = true;
  EXPECT_THAT(std::string(Refusal(model, folder.path(), options).message()),
              HasSubstr("the tensor 'own.state' as F32 [4, 5], not as U8 [160]"));
  EXPECT_EQ(Refusal(Model(), folder.path()), absl::OkStatus());
}

TEST(CheckpointRefusal, OptionsThatDifferAreRefusedUnlessAccepted) {
  const TemporaryFolder folder;
  TrainAndSave(folder.path(), 1);
  const Change changes[] = {
      {"momentum", [](CheckpointModel& m) { RuleOf<MuonOptions>(m, 0).momentum = 0.9; },
       "matrix 'wq' has momentum 0.95 there and is registered with 0.9"},
      {"iterations",
       [](CheckpointModel& m) { RuleOf<MuonOptions>(m, 0).newton_schulz.iterations = 4; },
       "matrix 'wq' has iterations 5 there and is registered with 4"},
      {"beta2", [](CheckpointModel& m) { RuleOf<AdamWOptions>(m, 1).beta2 = 0.95; },
       "matrix 'norm' has beta2 0.999 there and is registered with 0.95"},
      {"row blocks",
       [](CheckpointModel& m) {
         m[0].row_blocks = {8, 16};
       },
       "matrix 'wq' has row_blocks nothing there and is registered with [8,16]"},
      {"column blocks",
       [](CheckpointModel& m) {
         m[0].column_blocks = {8, 8};
       },
       "matrix 'wq' has column_blocks nothing there and is registered with [8,8]"},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.what);
    CheckpointModel model = Model();
    change.change(model);
    EXPECT_THAT(std::string(Refusal(model, folder.path()).message()), HasSubstr(change.sentence));
    std::vector<std::string> sentences;
    SetLogSink([&](LogLevel level, std::string_view sentence) {
      if (level == LogLevel::kWarning) sentences.emplace_back(sentence);
    });
    LoadOptions options;
    options.accept_other_options = true;
    EXPECT_EQ(Refusal(model, folder.path(), options), absl::OkStatus());
    SetLogSink(nullptr);
    EXPECT_THAT(sentences, ::testing::Contains(HasSubstr(change.sentence)).Times(1));
  }
}

// Of the two shards of a checkpoint that has some, and its index.
class Damaged : public ::testing::Test {
 protected:
  Damaged() {
    TrainAndSave(folder_.path(), 2);
    for (const std::string& name : FilesIn(folder_.path())) {
      (name == "weft-checkpoint.json" ? index_ : shards_.emplace_back()) = folder_ / name;
    }
    EXPECT_EQ(shards_.size(), 2u);
  }

  void ExpectRefused(const std::string& path, const std::string& sentence = "") {
    const absl::Status refusal = Refusal(Model(), folder_.path());
    EXPECT_FALSE(refusal.ok());
    EXPECT_THAT(std::string(refusal.message()), HasSubstr(path));
    EXPECT_THAT(std::string(refusal.message()), HasSubstr(sentence));
  }

  const TemporaryFolder folder_;
  std::string index_;
  std::vector<std::string> shards_;
};

TEST_F(Damaged, AMissingFileIsNamed) {
  for (const std::string& path : {shards_[0], shards_[1], index_}) {
    fs::rename(path, path + ".away");
    ExpectRefused(path);
    // Who starts anew where there is nothing must not do so here.
    EXPECT_EQ(absl::IsNotFound(Refusal(Model(), folder_.path())), path == index_);
    fs::rename(path + ".away", path);
  }
  EXPECT_EQ(Refusal(Model(), folder_.path()), absl::OkStatus());
}

TEST_F(Damaged, ATruncatedFileIsNamed) {
  for (const std::string& path : {shards_[0], shards_[1], index_}) {
    const std::string whole = testing::ReadAll(path);
    for (const std::size_t kept : {whole.size() - 1, whole.size() / 2, std::size_t{7}}) {
      testing::WriteAll(path, std::string_view(whole).substr(0, kept));
      ExpectRefused(path);
    }
    testing::WriteAll(path, whole);
  }
  EXPECT_EQ(Refusal(Model(), folder_.path()), absl::OkStatus());
}

TEST_F(Damaged, AFlippedBitIsFoundWhereverItIs) {
  std::mt19937_64 random(testing::Seed());
  for (const std::string& path : {shards_[0], shards_[1], index_}) {
    const std::string whole = testing::ReadAll(path);
    for (int i = 0; i < 60; ++i) {
      std::string flipped = whole;
      const std::size_t at = random() % whole.size();
      const int bit = static_cast<int>(random() % 8);
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      SCOPED_TRACE("byte " + std::to_string(at) + ", bit " + std::to_string(bit));
      testing::WriteAll(path, flipped);
      ExpectRefused(path);
    }
    testing::WriteAll(path, whole);
  }
  EXPECT_EQ(Refusal(Model(), folder_.path()), absl::OkStatus());
}

TEST_F(Damaged, ShardsOfAnotherStepOrRunAreRefused) {
  const TemporaryFolder other_step, other_run;
  TrainAndSave(other_step.path(), 3);
  TrainAndSave(other_run.path(), 2, /*seed=*/5);
  for (const TemporaryFolder* other : {&other_step, &other_run}) {
    for (const std::string& path : shards_) {
      const std::string whole = testing::ReadAll(path);
      // The shard of the same rank.
      const std::string end = path.substr(path.size() - 17);
      for (const std::string& name : FilesIn(other->path())) {
        if (name.size() < end.size() || name.substr(name.size() - end.size()) != end) continue;
        testing::WriteAll(path, testing::ReadAll(*other / name));
        ExpectRefused(path, "it is of the save ");
      }
      testing::WriteAll(path, whole);
    }
  }
  EXPECT_EQ(Refusal(Model(), folder_.path()), absl::OkStatus());
}

TEST(CheckpointRefusal, AFolderWithoutACheckpointIsNotFound) {
  const TemporaryFolder folder;
  const absl::Status refusal = Refusal(Model(), folder / "none");
  EXPECT_TRUE(absl::IsNotFound(refusal)) << refusal;
  EXPECT_THAT(std::string(refusal.message()), HasSubstr(folder / "none/weft-checkpoint.json"));
}

// Who finds none starts anew: not where another rank finds one.
TEST(CheckpointRefusal, AFolderThatOneRankDoesNotSeeIsNoNewStart) {
  const TemporaryFolder folder;
  TrainAndSave(folder.path(), 1);
  RunMembers(Model(), Options(), 2, [&](CheckpointMember& member, int rank) {
    const absl::Status refused = member->Load(rank == 1 ? folder / "none" : folder.path());
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                ::testing::AllOf(HasSubstr("rank 1: "), HasSubstr("that all ranks share")));
    return member->Load(folder.path());
  });
}

TEST(CheckpointRefusal, AnIndexIsNotLargerThanWhatIsRead) {
  // Never touched: too much by its length.
  const std::size_t bytes = runtime::kLargestIndex + 1;
  void* const pages =
      ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const absl::Status refused =
      runtime::ParseIndex({static_cast<const char*>(pages), bytes}, "here").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("here: an index of 1073741825 bytes"));
  ::munmap(pages, bytes);
}

TEST(CheckpointRefusal, RanksThatLoadDifferentThingsAreRefused) {
  const TemporaryFolder folders[2];
  for (const TemporaryFolder& folder : folders) TrainAndSave(folder.path(), 1);
  Snapshot before, after;
  RunMembers(Model(), Options(), 2, [&](CheckpointMember& member, int rank) {
    absl::Status status = member.AddTo(before, false);
    const auto refused = absl::InvalidArgumentError(
        "rank 1 loads another checkpoint, or with other options, than rank 0");
    EXPECT_EQ(member->Load(folders[rank].path()), refused);
    LoadOptions options;
    if (rank == 1) options.weights = CarriedWeights::kOwned;
    EXPECT_EQ(member->Load(folders[0].path(), options), refused);
    status.Update(member.AddTo(after, false));
    status.Update(member->Load(folders[0].path()));
    EXPECT_EQ(member->steps(), 1);
    return status;
  });
  EXPECT_EQ(Snapshot::Difference(before, after), "");
}

TEST(CheckpointRefusal, OnlyARuntimeThatHasNotBeenUsedLoads) {
  const TemporaryFolder folder;
  TrainAndSave(folder.path(), 1);
  CheckpointModel model = WithLayout(Model(), Layout::kOwned);
  using Use = std::function<absl::Status(CheckpointMember&)>;
  const Use uses[] = {
      [](CheckpointMember& member) { return member.Train(1); },
      [](CheckpointMember& member) { return member->WaitForLayer(0); },
      [](CheckpointMember& member) { return member->Progress(); },
  };
  for (const Use& use : uses) {
    RunMembers(model, Options(), 1, [&](CheckpointMember& member, int rank) {
      // One rank is enough, where the use is none that its peers have to take part in.
      absl::Status status = use(member);
      const absl::Status loaded = member->Load(folder.path());
      EXPECT_TRUE(absl::IsFailedPrecondition(loaded)) << rank << ": " << loaded;
      EXPECT_THAT(std::string(loaded.message()), HasSubstr("has been used since Commit()"));
      return status;
    });
  }
}

TEST(CheckpointRefusal, NothingIsSavedInsideAStep) {
  const TemporaryFolder folder;
  RunMembers(Model(), Options(), 1, [&](CheckpointMember& member, int rank) {
    absl::Status status = member.Train(1);
    if (rank == 1) status.Update(member.Submit(2));
    const std::string sentence =
        "rank 1: matrix 'own' has a gradient in step 1, which is not closed";
    EXPECT_EQ(member->Save(folder.path()), absl::FailedPreconditionError(sentence));
    EXPECT_EQ(member->ExportState().status(), absl::FailedPreconditionError(sentence));
    if (rank == 0) status.Update(member.Submit(2));
    for (const std::size_t m : {1, 0}) status.Update(member.Submit(m));
    status.Update(member->Step());
    status.Update(member->Save(folder.path()));
    EXPECT_THAT(std::string(member->Save("").message()), HasSubstr("folder is empty"));
    SaveOptions options;
    options.block_bytes = 0;
    EXPECT_THAT(std::string(member->Save(folder.path(), options).message()),
                HasSubstr("block_bytes is 0"));
    options.block_bytes = 1 + rank;
    EXPECT_EQ(member->Save(folder.path(), options),
              absl::InvalidArgumentError("rank 1 saves with other options than rank 0"));
    return status;
  });
}

TEST(CheckpointRefusal, AnImportWithoutWhatThisRankNeedsNamesTheTensor) {
  ExportedState whole;
  std::mutex mutex;
  RunMembers(Model(), Options(), 1, [&](CheckpointMember& member, int) -> absl::Status {
    auto state = member->ExportState();
    if (!state.ok()) return state.status();
    const std::lock_guard<std::mutex> lock(mutex);
    whole.description = state->description;
    for (StateTensor& tensor : state->tensors) whole.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  });
  struct Spoil {
    std::function<void(ExportedState&)> spoil;
    std::string sentence;
  };
  const auto each = [](ExportedState& state, const std::string& name, auto change) {
    for (StateTensor& tensor : state.tensors) {
      if (tensor.name == name) change(tensor);
    }
  };
  const Spoil spoils[] = {
      {[](ExportedState& state) { state.description = "{"; }, "has no description"},
      {[](ExportedState& state) { state.description = "{}"; }, "does not describe a run of Weft"},
      {[&](ExportedState& state) {
         each(state, "wq.weight", [](StateTensor& tensor) { tensor.rows = 0; });
       },
       "has no row 0 of the tensor 'wq.weight'"},
      {[&](ExportedState& state) {
         each(state, "norm.exp_avg", [](StateTensor& tensor) { tensor.dtype = "F64"; });
       },
       "the tensor 'norm.exp_avg' is F64 [1, 40], not F32 [1, 40]"},
      {[&](ExportedState& state) {
         each(state, "own.state", [](StateTensor& tensor) {
           if (tensor.rows > 0) tensor.data.pop_back();
         });
       },
       "the tensor 'own.state' has 79 bytes for 4 rows of 20"},
      {[&](ExportedState& state) {
         each(state, "own.weight", [](StateTensor& tensor) {
           if (tensor.rows > 0) tensor.rows = INT64_MAX;
         });
       },
       "leaves it"},
  };
  for (const Spoil& spoil : spoils) {
    ExportedState state = whole;
    spoil.spoil(state);
    Snapshot before, after;
    RunMembers(Model(), Options(), 2, [&](CheckpointMember& member, int) {
      absl::Status status = member.AddTo(before, false);
      EXPECT_THAT(std::string(member->ImportState(state).message()), HasSubstr(spoil.sentence));
      status.Update(member.AddTo(after, false));
      status.Update(member->ImportState(whole));
      return status;
    });
    EXPECT_EQ(Snapshot::Difference(before, after), "");
  }
}

// A disk that has no room for a third set has some again before the next save begins.
TEST(CheckpointFault, WhatBrokenSavesHaveLeftGoesBeforeTheNext) {
  const TemporaryFolder folder;
  TrainAndSave(folder.path(), 1);
  const std::size_t files = folder.Files();
  testing::WriteAll(folder / "weft-7-0123456789abcdef-00001.safetensors", "left");
  {
    const testing::WatchedFiles watched(folder.path(), [](const testing::FileStep& step) {
      return step.call == "write" ? ENOSPC : 0;
    });
    RunMembers(Model(), Options(), 1, [&](CheckpointMember& member, int) {
      EXPECT_TRUE(absl::IsResourceExhausted(member->Save(folder.path())));
      return absl::OkStatus();
    });
  }
  EXPECT_EQ(folder.Files(), files);
  RunMembers(Model(), Options(), 2, [&](CheckpointMember& member, int) {
    const absl::Status status = member->Load(folder.path());
    EXPECT_EQ(member->steps(), 1);
    return status;
  });
}

thread_local int this_rank = -1;

// What fails on one rank fails on all, and everything goes on: the old checkpoint loads, and the
// next save succeeds.
TEST(CheckpointFault, AFullDiskOnOneRankFailsTheSaveOnAllAndLeavesTheOldOne) {
  struct Fault {
    int rank;
    std::string call;
    std::string end;  // of the path
  };
  const Fault faults[] = {
      {1, "write", ""}, {1, "fsync", ""}, {1, "linkat", "safetensors"},
      {0, "write", ""}, {0, "fsync", ""}, {0, "rename", "weft-checkpoint.json"}};
  for (const Fault& fault : faults) {
    for (int skip = 0; skip < 20; ++skip) {
      SCOPED_TRACE("rank " + std::to_string(fault.rank) + ", " + fault.call + " after " +
                   std::to_string(skip));
      const TemporaryFolder folder;
      TrainAndSave(folder.path(), 1);
      const std::size_t files = folder.Files();
      std::atomic<int> left{skip};
      std::atomic<bool> failed{false}, armed{false};
      {
        const testing::WatchedFiles watched(folder.path(), [&](const testing::FileStep& step) {
          if (!armed || this_rank != fault.rank || step.call != fault.call) return 0;
          if (fault.end.size() > step.path.size() ||
              step.path.compare(step.path.size() - fault.end.size(), fault.end.size(), fault.end) !=
                  0) {
            return 0;
          }
          if (left-- != 0) return 0;
          failed = true;
          return ENOSPC;
        });
        RunMembers(Model(), Options(), 1, [&](CheckpointMember& member, int rank) {
          this_rank = rank;
          absl::Status status = member.Train(2);
          armed = true;
          const absl::Status saved = member->Save(folder.path());
          EXPECT_EQ(saved.ok(), !failed) << saved;
          if (!saved.ok()) {
            EXPECT_TRUE(absl::IsResourceExhausted(saved)) << saved;
            EXPECT_THAT(std::string(saved.message()),
                        ::testing::StartsWith("rank " + std::to_string(fault.rank) +
                                              ": cannot write " + folder.path()));
          }
          status.Update(member.Train(1));
          return status;
        });
      }
      if (failed && fault.rank == 1) {
        EXPECT_EQ(folder.Files(), files) << "no room is taken";
      }
      RunMembers(Model(), Options(), 2, [&](CheckpointMember& member, int) {
        absl::Status status = member->Load(folder.path());
        // A folder's sync may fail when the index has come to name the new set.
        EXPECT_TRUE(member->steps() == 1 || (member->steps() == 2 && fault.call == "fsync") ||
                    !failed)
            << member->steps();
        status.Update(member->Save(folder.path()));
        return status;
      });
      EXPECT_EQ(folder.Files(), files);
      if (!failed) break;
      EXPECT_LT(skip, 19) << "steps are left that have not failed";
    }
  }
}

}  // namespace
}  // namespace weft
