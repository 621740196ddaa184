#include "collectives/gloo/member.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/gloo/algorithms.h"
#include "collectives/gloo/quiet_pipe.h"

namespace weft::collectives::gloo {

GlooMember::GlooMember(Membership membership, std::shared_ptr<Session> session,
                       std::unique_ptr<Connections> connections)
    : Member(std::move(membership), session->clock(), session->deadline()),
      session_(std::move(session)),
      connections_(std::move(connections)) {}

GlooMember::~GlooMember() = default;

absl::Status GlooMember::Run(const Operation& op) {
  std::shared_ptr<Connections> connections;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    connections = connections_;
    running_ = connections != nullptr;
  }
  if (connections == nullptr) {
    // Whoever closed them has posted why, but may still be waiting for the whole story.
    Kill(Tell(session_->Story(), membership()));
    return status();
  }
  Exchange exchange{
      *session_, *connections, membership(),
      scratch_,  sequence_++,  [this] { return !status().ok() || session_->ended().has_value(); }};
  const QuietPipe quiet;
  absl::StatusOr<std::optional<Wire::Trouble>> outcome = Perform(exchange, op);
  absl::Status result;
  if (!outcome.ok()) {
    // Every member sees the disagreement for itself and tells it in the same words.
    result = DieOf({PostKind::kCause,
                    -1,
                    membership().name,
                    {outcome.status().code(), -1, std::string(outcome.status().message())}});
  } else if (outcome->has_value()) {
    result = Die(op, **outcome);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  running_ = false;
  return result;
}

absl::Status GlooMember::Die(const Operation& op, const Wire::Trouble& trouble) {
  if (trouble.peer < 0) {
    // Ended by an abort, this rank's or a peer's, or by the end of the transport.
    if (absl::Status dead = status(); !dead.ok()) return dead;
    if (const std::optional<Post> ended = session_->ended()) {
      Kill(Tell(*ended, membership()));
      return status();
    }
    return absl::InternalError("an operation was interrupted without a reason");
  }
  const int suspect = membership().world_ranks[trouble.peer];
  Post own{PostKind::kSuspect, suspect, membership().name, {}};
  if (trouble.timed_out) {
    for (const int peer : trouble.missing) own.missing.push_back(membership().world_ranks[peer]);
    own.operation = Describe(op);
    own.failure = WaitedFor(membership().world_rank(), deadline(), own.missing, own.operation);
  } else {
    own.failure = {
        absl::StatusCode::kUnavailable, membership().world_rank(),
        absl::StrCat("lost rank ", suspect, " in ", Describe(op), " (", trouble.text, ")")};
    const std::optional<Post> theirs = session_->PostOf(suspect);
    if (theirs && theirs->kind != PostKind::kLeft) own.kind = PostKind::kLearned;
  }
  return DieOf(own);
}

absl::Status GlooMember::DieOf(const Post& own) {
  session_->Report(own);
  // Before the wait for the others' posts: it is by the closing that some of them will notice.
  Close();
  Kill(Tell(session_->Story(), membership()));
  return status();
}

void GlooMember::Fail(const Failure& failure) {
  DieOf({PostKind::kCause, -1, membership().name, failure}).IgnoreError();
}

void GlooMember::End(const Post& why) {
  Kill(Tell(why, membership()));
  Close();
}

void GlooMember::PeerAborted(int peer) {
  const std::vector<int>& ranks = membership().world_ranks;
  if (!std::binary_search(ranks.begin(), ranks.end(), peer) || !status().ok()) return;
  Post learned{PostKind::kLearned, -1, "", {absl::StatusCode::kUnavailable, peer, "aborted"}};
  if (const std::optional<Post> post = session_->PostOf(peer)) learned.failure = post->failure;
  DieOf(learned).IgnoreError();
}

// A running operation still uses its connections: they are reset under it. Idle ones are closed in
// peace, so that what was sent last still arrives.
void GlooMember::Close() {
  std::shared_ptr<Connections> connections;
  bool running = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    connections = std::exchange(connections_, nullptr);
    running = running_;
  }
  if (connections != nullptr && running) connections->Reset();
}

}  // namespace weft::collectives::gloo
