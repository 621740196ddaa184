// What ranks tell each other when nothing goes on, and the one story that all make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/nccl/note.h"
#include "tests/support/seed.h"

namespace weft::collectives::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using weft::testing::Seed;

constexpr Nanos kSecond = 1'000'000'000;

CommunicatorNote In(const std::string& name, std::vector<int> ranks, std::int64_t entered,
                    const std::string& operation = "", std::int64_t launch = 0,
                    const std::string& signature = "all-reduce of 4 f32 (sum)") {
  CommunicatorNote note{name, std::move(ranks), entered, std::nullopt};
  if (!operation.empty()) note.waiting = Waiting{2 * kSecond, launch, operation, signature};
  return note;
}

Note With(std::vector<CommunicatorNote> communicators) {
  return {std::move(communicators), "", ""};
}

std::optional<std::int64_t> NothingClosed(const std::string&, int) { return std::nullopt; }

std::string RandomText(std::mt19937_64& random) {
  std::string text(random() % 12, ' ');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

Note RandomNote(std::mt19937_64& random) {
  Note note;
  note.error = RandomText(random);
  note.error_communicator = RandomText(random);
  note.communicators.resize(random() % 4);
  for (CommunicatorNote& communicator : note.communicators) {
    communicator.name = RandomText(random);
    communicator.world_ranks.resize(random() % 5);
    for (int& rank : communicator.world_ranks) rank = static_cast<int>(random() % 1000);
    communicator.entered = static_cast<std::int64_t>(random() % 100);
    if (random() % 2 == 0) continue;
    communicator.waiting =
        Waiting{static_cast<Nanos>(random() % 1'000'000), static_cast<std::int64_t>(random() % 50),
                RandomText(random), RandomText(random)};
  }
  return note;
}

TEST(Note, ComesBackAsItWasWritten) {
  std::mt19937_64 random(Seed() + 1);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = Encode(RandomNote(random));
    const std::optional<Note> read = Decode(text);
    ASSERT_TRUE(read.has_value()) << i;
    ASSERT_EQ(Encode(*read), text) << i;
  }
}

TEST(Note, WhatIsCutOffOrTooLongIsNone) {
  std::mt19937_64 random(Seed() + 2);
  for (int i = 0; i < 200; ++i) {
    const std::string text = Encode(RandomNote(random));
    EXPECT_FALSE(Decode(text.substr(0, random() % text.size())).has_value());
    EXPECT_FALSE(Decode(text + "x").has_value());
  }
}

TEST(Story, NamesAllThatHaveNotCome) {
  const std::vector<int> all = {0, 1, 2, 3};
  // Rank 3 tells nothing, rank 1 is one collective behind.
  const Notes notes = {With({In("c", all, 5, "reduce of 'w'")}), With({In("c", all, 4)}),
                       With({In("c", all, 5, "reduce of 'w'")}), std::nullopt};
  const Post story = StoryOf(notes, NothingClosed);
  EXPECT_EQ(story.failure.code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(story.failure.rank, 0);
  EXPECT_EQ(story.communicator, "c");
  EXPECT_EQ(story.failure.what, "waited 2s for ranks 1 and 3 in reduce of 'w'");
}

TEST(Story, EndsWhereTheChainOfWaitsEnds) {
  // 0 waits for 1 in a, 1 for 2 in b, 2 for 3 in c; 3 waits for nobody.
  const Notes notes = {
      With({In("a", {0, 1}, 1, "A")}), With({In("a", {0, 1}, 0), In("b", {1, 2}, 1, "B")}),
      With({In("b", {1, 2}, 0), In("c", {2, 3}, 1, "C")}), With({In("c", {2, 3}, 0)})};
  const Post story = StoryOf(notes, NothingClosed);
  EXPECT_EQ(story.communicator, "c");
  EXPECT_EQ(story.failure.rank, 2);
  EXPECT_THAT(story.failure.what, HasSubstr("for rank 3 in C"));
}

TEST(Story, ACircleOfWaitsEnds) {
  const Notes notes = {With({In("a", {0, 1}, 1, "A"), In("b", {0, 1}, 0)}),
                       With({In("a", {0, 1}, 0), In("b", {0, 1}, 1, "B")})};
  const Post story = StoryOf(notes, NothingClosed);
  EXPECT_EQ(story.failure.code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(story.failure.what, AllOf(HasSubstr("waited 2s for rank"), HasSubstr(" in ")));
}

TEST(Story, TheFirstLaunchThatLacksSomebodyIsTold) {
  const std::vector<int> all = {0, 1};
  const Notes notes = {With({In("late", all, 1, "L", 7), In("early", all, 1, "E", 3)}),
                       With({In("late", all, 0), In("early", all, 0)})};
  EXPECT_EQ(StoryOf(notes, NothingClosed).communicator, "early");
}

TEST(Story, DifferentCollectivesInOnePlaceAreADisagreement) {
  const std::vector<int> all = {0, 1};
  const Notes notes = {With({In("c", all, 3, "barrier", 0, "barrier")}),
                       With({In("c", all, 3, "reduce", 0, "reduce of 4 f32 (sum) with root 0")})};
  const Post story = StoryOf(notes, NothingClosed);
  EXPECT_EQ(story.failure.code, absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(story.failure.what, AllOf(HasSubstr("rank 0 came to barrier"), HasSubstr("rank 1"),
                                        HasSubstr("with root 0")));
}

TEST(Story, WhoHasClosedTheCommunicatorTooEarlyIsLost) {
  const std::vector<int> all = {0, 1};
  const Notes notes = {With({In("c", all, 3, "reduce")}), std::nullopt};
  const auto closed_after = [](std::int64_t count) {
    return [count](const std::string& name, int rank) -> std::optional<std::int64_t> {
      if (name == "c" && rank == 1) return count;
      return std::nullopt;
    };
  };
  const Post story = StoryOf(notes, closed_after(2));
  EXPECT_EQ(story.failure.code, absl::StatusCode::kUnavailable);
  EXPECT_THAT(story.failure.what, HasSubstr("lost rank 1 in reduce, which has left"));
  // It was there: nobody can be named.
  EXPECT_THAT(StoryOf(notes, closed_after(3)).failure.what, HasSubstr("all ranks have come"));
}

TEST(Story, WhatNcclReportsComesBeforeWaits) {
  Notes notes = {With({In("c", {0, 1}, 1, "reduce")}), With({In("c", {0, 1}, 0)})};
  notes[1]->error = "remote process exited";
  notes[1]->error_communicator = "d";
  const Post story = StoryOf(notes, NothingClosed);
  EXPECT_EQ(story.failure.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(story.failure.rank, 1);
  EXPECT_EQ(story.communicator, "d");
}

TEST(Story, IsThereWhateverTheNotesSay) {
  std::mt19937_64 random(Seed() + 3);
  for (int i = 0; i < 2000; ++i) {
    Notes notes(1 + random() % 5);
    for (auto& note : notes) {
      if (random() % 4 == 0) continue;
      note = RandomNote(random);
      if (random() % 2 == 0) note->error.clear();
      for (CommunicatorNote& communicator : note->communicators) {
        communicator.name = std::string(1, static_cast<char>('a' + random() % 3));
        communicator.world_ranks = {0, 1, static_cast<int>(random() % 7)};
      }
    }
    const Post story = StoryOf(notes, NothingClosed);
    EXPECT_NE(story.failure.code, absl::StatusCode::kOk);
    EXPECT_EQ(StoryOf(notes, NothingClosed).failure.what, story.failure.what);
  }
}

}  // namespace
}  // namespace weft::collectives::nccl
