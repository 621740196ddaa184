#include "collectives/nccl/note.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/failure.h"

namespace weft::collectives::nccl {
namespace {

// Numbers end in a space; texts are a number, their length, and as many characters.
class Writer {
 public:
  void Number(std::int64_t number) { absl::StrAppend(&text_, number, " "); }
  void Text(const std::string& text) {
    Number(static_cast<std::int64_t>(text.size()));
    text_ += text;
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  bool AtEnd() const { return text_.empty(); }

  std::int64_t Number() {
    const std::size_t end = text_.find(' ');
    std::int64_t number = 0;
    if (end == std::string_view::npos ||
        !absl::SimpleAtoi(std::string(text_.substr(0, end)), &number)) {
      ok_ = false;
      text_ = {};
      return 0;
    }
    text_.remove_prefix(end + 1);
    return number;
  }
  // A number that counts things which take at least a character each.
  std::int64_t Size() {
    const std::int64_t size = Number();
    if (size >= 0 && size <= static_cast<std::int64_t>(text_.size())) return size;
    ok_ = false;
    return 0;
  }
  std::string Text() {
    const auto size = static_cast<std::size_t>(Size());
    std::string text(text_.substr(0, size));
    text_.remove_prefix(size);
    return text;
  }

 private:
  std::string_view text_;
  bool ok_ = true;
};

// A rank in what it waits for.
struct Wait {
  int rank = -1;
  const CommunicatorNote* communicator = nullptr;

  std::int64_t sequence() const { return communicator->entered - 1; }
  const Waiting& waiting() const { return *communicator->waiting; }
};

// In the order of their launches.
std::vector<Wait> WaitsOf(const Notes& notes, int rank) {
  std::vector<Wait> waits;
  if (!notes[rank]) return waits;
  for (const CommunicatorNote& communicator : notes[rank]->communicators) {
    if (communicator.waiting) waits.push_back({rank, &communicator});
  }
  std::sort(waits.begin(), waits.end(),
            [](const Wait& a, const Wait& b) { return a.waiting().launch < b.waiting().launch; });
  return waits;
}

const CommunicatorNote* Find(const Notes& notes, int rank, const std::string& name) {
  if (rank < 0 || rank >= static_cast<int>(notes.size()) || !notes[rank]) return nullptr;
  for (const CommunicatorNote& communicator : notes[rank]->communicators) {
    if (communicator.name == name) return &communicator;
  }
  return nullptr;
}

std::vector<int> MissingIn(const Notes& notes, const ClosedCount& closed, const Wait& wait) {
  std::vector<int> missing;
  for (const int member : wait.communicator->world_ranks) {
    const CommunicatorNote* theirs = Find(notes, member, wait.communicator->name);
    const std::int64_t entered =
        theirs != nullptr ? theirs->entered : closed(wait.communicator->name, member).value_or(0);
    if (entered <= wait.sequence()) missing.push_back(member);
  }
  return missing;
}

Post PostOf(const Wait& wait, Failure failure) {
  return {PostKind::kLearned, -1, wait.communicator->name, std::move(failure)};
}

std::optional<Post> Disagreement(const Notes& notes, const Wait& wait) {
  for (const int member : wait.communicator->world_ranks) {
    const CommunicatorNote* theirs = Find(notes, member, wait.communicator->name);
    if (theirs == nullptr || !theirs->waiting || theirs->entered != wait.communicator->entered ||
        theirs->waiting->signature == wait.waiting().signature) {
      continue;
    }
    return PostOf(wait, {absl::StatusCode::kInvalidArgument, -1,
                         absl::StrCat("its members disagree: rank ", wait.rank, " came to ",
                                      wait.waiting().operation, " (", wait.waiting().signature,
                                      "), rank ", member, " to ", theirs->waiting->operation, " (",
                                      theirs->waiting->signature, ")")});
  }
  return std::nullopt;
}

std::optional<Post> Lost(const ClosedCount& closed, const Wait& wait) {
  for (const int member : wait.communicator->world_ranks) {
    const std::optional<std::int64_t> count = closed(wait.communicator->name, member);
    if (!count || *count > wait.sequence()) continue;
    return PostOf(wait, {absl::StatusCode::kUnavailable, wait.rank,
                         absl::StrCat("lost rank ", member, " in ", wait.waiting().operation,
                                      ", which has left")});
  }
  return std::nullopt;
}

// To what a person reads: clocks and looks at the device are no finer.
absl::Duration Rounded(Nanos waited) {
  constexpr Nanos kTenth = 100'000'000;
  if (waited < kTenth) return absl::Nanoseconds(waited);
  return absl::Nanoseconds((waited + kTenth / 2) / kTenth * kTenth);
}

// Where the chain ends that begins with `first`, in which somebody is missing.
Post EndOfChain(const Notes& notes, const ClosedCount& closed, Wait first) {
  std::set<int> visited = {first.rank};
  Wait last = first;
  std::vector<int> missing = MissingIn(notes, closed, last);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    const int next = missing.front();
    if (next >= static_cast<int>(notes.size()) || !visited.insert(next).second) break;
    for (const Wait& wait : WaitsOf(notes, next)) {
      std::vector<int> theirs = MissingIn(notes, closed, wait);
      if (theirs.empty()) continue;
      last = wait;
      missing = std::move(theirs);
      goes_on = true;
      break;
    }
  }
  Post post = PostOf(last, WaitedFor(last.rank, Rounded(last.waiting().waited), missing,
                                     last.waiting().operation));
  post.suspect = missing.front();
  post.missing = missing;
  post.operation = last.waiting().operation;
  return post;
}

}  // namespace

std::string Encode(const Note& note) {
  Writer writer;
  writer.Text(note.error);
  writer.Text(note.error_communicator);
  writer.Number(static_cast<std::int64_t>(note.communicators.size()));
  for (const CommunicatorNote& communicator : note.communicators) {
    writer.Text(communicator.name);
    writer.Number(static_cast<std::int64_t>(communicator.world_ranks.size()));
    for (const int rank : communicator.world_ranks) writer.Number(rank);
    writer.Number(communicator.entered);
    writer.Number(communicator.waiting ? 1 : 0);
    if (!communicator.waiting) continue;
    writer.Number(communicator.waiting->waited);
    writer.Number(communicator.waiting->launch);
    writer.Text(communicator.waiting->operation);
    writer.Text(communicator.waiting->signature);
  }
  return writer.Take();
}

std::optional<Note> Decode(const std::string& text) {
  Reader reader(text);
  Note note;
  note.error = reader.Text();
  note.error_communicator = reader.Text();
  const std::int64_t communicators = reader.Size();
  for (std::int64_t i = 0; i < communicators && reader.ok(); ++i) {
    CommunicatorNote& communicator = note.communicators.emplace_back();
    communicator.name = reader.Text();
    const std::int64_t ranks = reader.Size();
    for (std::int64_t r = 0; r < ranks && reader.ok(); ++r) {
      communicator.world_ranks.push_back(static_cast<int>(reader.Number()));
    }
    communicator.entered = reader.Number();
    if (reader.Number() == 0) continue;
    Waiting& waiting = communicator.waiting.emplace();
    waiting.waited = reader.Number();
    waiting.launch = reader.Number();
    waiting.operation = reader.Text();
    waiting.signature = reader.Text();
  }
  if (!reader.ok() || !reader.AtEnd()) return std::nullopt;
  return note;
}

Post StoryOf(const Notes& notes, const ClosedCount& closed) {
  std::vector<Wait> waits;
  for (int rank = 0; rank < static_cast<int>(notes.size()); ++rank) {
    for (const Wait& wait : WaitsOf(notes, rank)) waits.push_back(wait);
  }
  for (const Wait& wait : waits) {
    if (std::optional<Post> post = Disagreement(notes, wait)) return *post;
  }
  for (const Wait& wait : waits) {
    if (std::optional<Post> post = Lost(closed, wait)) return *post;
  }
  for (int rank = 0; rank < static_cast<int>(notes.size()); ++rank) {
    if (!notes[rank] || notes[rank]->error.empty()) continue;
    return {PostKind::kLearned,
            -1,
            notes[rank]->error_communicator,
            {absl::StatusCode::kUnavailable, rank, notes[rank]->error}};
  }
  for (const Wait& wait : waits) {
    if (!MissingIn(notes, closed, wait).empty()) return EndOfChain(notes, closed, wait);
  }
  const auto longest = std::max_element(
      waits.begin(), waits.end(),
      [](const Wait& a, const Wait& b) { return a.waiting().waited < b.waiting().waited; });
  if (longest == waits.end()) {
    return {PostKind::kLearned,
            -1,
            "",
            {absl::StatusCode::kUnavailable, -1, "the store's notes cannot be read"}};
  }
  return PostOf(*longest,
                {absl::StatusCode::kDeadlineExceeded, longest->rank,
                 absl::StrCat("waited ", absl::FormatDuration(Rounded(longest->waiting().waited)),
                              " in ", longest->waiting().operation,
                              ", to which all ranks have come: whose device does not go on cannot "
                              "be known")});
}

}  // namespace weft::collectives::nccl
