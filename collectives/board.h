// The board on which ranks post why they failed, so that one broken connection becomes one story
// on all ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "collectives/failure.h"
#include "collectives/membership.h"
#include "collectives/store.h"

namespace weft::collectives {

enum class PostKind {
  kCause,    // the failure began here
  kSuspect,  // this rank lost or waited in vain for rank `suspect`
  kLearned,  // this rank failed because it saw another rank's post
  kLeft,     // this rank ended without a failure
};

struct Post {
  PostKind kind = PostKind::kCause;
  int suspect = -1;
  // In which communicator, empty when in all.
  std::string communicator;
  Failure failure;
  // Of a wait in vain: all that had not come, and to what.
  std::vector<int> missing = {};
  std::string operation = {};
};

// Indexed by world rank.
using Posts = std::vector<std::optional<Post>>;

// One post per rank, the first stays. Thread-safe.
class Board {
 public:
  Board(const Store& store, int ranks) : store_(store), ranks_(ranks) {}

  // False when `rank` had posted before or the store fails.
  bool Write(int rank, const Post& post) const;
  std::optional<Post> Read(int rank) const;
  Posts ReadAll() const;

  // A second mark for ranks that have aborted all their communicators.
  void MarkAborted(int rank) const;
  bool IsAborted(int rank) const;

 private:
  const Store& store_;
  const int ranks_;
};

// The post's failure as it is told on a member of a communicator.
absl::Status Tell(const Post& story, const Membership& membership);

// The root cause: the lowest rank that posted a cause, or else the end of a chain of suspicions, a
// rank that is suspected and suspects nobody. Whoever has posted is alive, and is not told as
// missing. Nothing while the end of the chain may still post; `final` says that it had its time.
// Waits lasted `deadline`.
std::optional<Post> RootCause(const Posts& posts, bool final, absl::Duration deadline);

}  // namespace weft::collectives
