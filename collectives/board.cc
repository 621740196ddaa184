#include "collectives/board.h"

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft::collectives {
namespace {

// Kind, suspect, code, blamed rank, the missing ranks, the lengths of the communicator's name and
// of the operation, a line each; then name, operation and text.
std::string Encode(const Post& post) {
  return absl::StrCat(static_cast<int>(post.kind), "\n", post.suspect, "\n",
                      static_cast<int>(post.failure.code), "\n", post.failure.rank, "\n",
                      absl::StrJoin(post.missing, " "), "\n", post.communicator.size(), "\n",
                      post.operation.size(), "\n", post.communicator, post.operation,
                      post.failure.what);
}

std::optional<Post> Decode(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 7));
  if (lines.size() != 8) return std::nullopt;
  int kind = 0;
  int code = 0;
  Post post;
  if (!absl::SimpleAtoi(lines[0], &kind) || !absl::SimpleAtoi(lines[1], &post.suspect) ||
      !absl::SimpleAtoi(lines[2], &code) || !absl::SimpleAtoi(lines[3], &post.failure.rank)) {
    return std::nullopt;
  }
  post.kind = static_cast<PostKind>(kind);
  post.failure.code = static_cast<absl::StatusCode>(code);
  for (const auto& rank : absl::StrSplit(lines[4], ' ', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(rank, &post.missing.emplace_back())) return std::nullopt;
  }
  std::size_t name_size = 0;
  std::size_t operation_size = 0;
  if (!absl::SimpleAtoi(lines[5], &name_size) || !absl::SimpleAtoi(lines[6], &operation_size) ||
      name_size > lines[7].size() || operation_size > lines[7].size() - name_size) {
    return std::nullopt;
  }
  post.communicator = lines[7].substr(0, name_size);
  post.operation = lines[7].substr(name_size, operation_size);
  post.failure.what = lines[7].substr(name_size + operation_size);
  return post;
}

// The same without the ranks that have been heard of.
Post WithoutTheLiving(Post post, const Posts& posts, absl::Duration deadline) {
  std::erase_if(post.missing, [&](int rank) {
    return rank < 0 || rank >= static_cast<int>(posts.size()) || posts[rank].has_value();
  });
  if (!post.missing.empty()) {
    post.failure = WaitedFor(post.failure.rank, deadline, post.missing, post.operation);
  }
  return post;
}

bool AllOthersPosted(const Posts& posts, int except) {
  for (int rank = 0; rank < static_cast<int>(posts.size()); ++rank) {
    if (rank != except && !posts[rank]) return false;
  }
  return true;
}

// Where the chain of suspicions from `rank` ends.
struct Chain {
  int accuser = -1;
  int accused = -1;
};

Chain Follow(const Posts& posts, int rank) {
  std::set<int> visited = {rank};
  Chain chain{rank, posts[rank]->suspect};
  while (posts[chain.accused] && posts[chain.accused]->kind == PostKind::kSuspect &&
         visited.insert(chain.accused).second) {
    chain = {chain.accused, posts[chain.accused]->suspect};
  }
  return chain;
}

}  // namespace

bool Board::Write(int rank, const Post& post) const {
  return store_.Post(absl::StrCat("failed.", rank), Encode(post)).ok();
}

std::optional<Post> Board::Read(int rank) const {
  const std::optional<std::string> text = store_.Read(absl::StrCat("failed.", rank));
  if (!text) return std::nullopt;
  std::optional<Post> post = Decode(*text);
  if (post && post->kind == PostKind::kSuspect && (post->suspect < 0 || post->suspect >= ranks_)) {
    return std::nullopt;
  }
  return post;
}

Posts Board::ReadAll() const {
  Posts posts(ranks_);
  for (int rank = 0; rank < ranks_; ++rank) posts[rank] = Read(rank);
  return posts;
}

void Board::MarkAborted(int rank) const {
  // Peers that miss the mark still see the connections close.
  store_.Post(absl::StrCat("aborted.", rank), "").IgnoreError();
}

bool Board::IsAborted(int rank) const {
  return store_.Read(absl::StrCat("aborted.", rank)).has_value();
}

absl::Status Tell(const Post& story, const Membership& membership) {
  Failure failure = story.failure;
  if (!story.communicator.empty() && story.communicator != membership.name) {
    absl::StrAppend(&failure.what, " on communicator '", story.communicator, "'");
  }
  return AsSeenBy(failure, membership.name, membership.world_rank());
}

std::optional<Post> RootCause(const Posts& posts, bool final, absl::Duration deadline) {
  for (const std::optional<Post>& post : posts) {
    if (post && post->kind == PostKind::kCause) return post;
  }
  std::optional<Post> weaker;
  for (int rank = 0; rank < static_cast<int>(posts.size()); ++rank) {
    if (!posts[rank] || posts[rank]->kind != PostKind::kSuspect) continue;
    const Chain chain = Follow(posts, rank);
    const Post& accusation = *posts[chain.accuser];
    const std::optional<Post>& answer = posts[chain.accused];
    if (!answer) {
      if (final || AllOthersPosted(posts, chain.accused)) {
        return WithoutTheLiving(accusation, posts, deadline);
      }
      return std::nullopt;
    }
    if (weaker) continue;
    weaker = accusation;
    if (answer->kind == PostKind::kLeft) {
      absl::StrAppend(&weaker->failure.what, ", which has left");
    }
  }
  return weaker;
}

}  // namespace weft::collectives
