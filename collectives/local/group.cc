#include "collectives/local/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/local/world.h"
#include "collectives/reduce.h"

namespace weft::collectives::local {
namespace {

void CopyBytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

char* At(void* base, std::int64_t offset) {
  return offset == 0 ? static_cast<char*>(base) : static_cast<char*>(base) + offset;
}
const char* At(const void* base, std::int64_t offset) {
  return offset == 0 ? static_cast<const char*>(base) : static_cast<const char*>(base) + offset;
}

// Elements of a vector that one rank reduces: equal shares, in multiples of a cache line.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Range ShareOf(std::int64_t count, int rank, int size) {
  constexpr std::int64_t kLine = 32;
  const std::int64_t lines = (count + kLine - 1) / kLine;
  const auto edge = [&](int r) { return std::min(count, lines * r / size * kLine); };
  return {edge(rank), edge(rank + 1)};
}

}  // namespace

Group::Group(World& world, std::string name, std::vector<int> world_ranks)
    : world_(world),
      name_(std::move(name)),
      world_ranks_(std::move(world_ranks)),
      members_(world_ranks_.size(), nullptr),
      has_left_(world_ranks_.size(), false) {
  for (Slot& slot : slots_) slot.ops.assign(world_ranks_.size(), nullptr);
}

absl::Status Group::Run(int rank, std::int64_t sequence, const Operation& op) {
  Slot& slot = slots_[sequence % 2];
  {
    std::unique_lock<std::mutex> lock(mutex_);
    WEFT_RETURN_IF_ERROR(Meet(rank, slot, op, lock));
  }
  for (std::size_t place = 0; place < PartsOf(op); ++place) CopyShare(rank, slot, place);

  std::unique_lock<std::mutex> lock(mutex_);
  if (++slot.done == size()) changed_.notify_all();
  // Not bounded by the deadline: every member is in this function and waits for nothing else, and
  // to leave earlier would let a peer read memory that is the caller's again.
  changed_.wait(lock, [&] { return slot.done == size(); });
  while (!failure_ && world_.clock().Now() < slot.end) {
    world_.clock().WaitUntil(changed_, lock, slot.end);
  }
  const bool interrupted = world_.clock().Now() < slot.end;
  if (++slot.left == size()) {
    slot = Slot{};
    slot.ops.assign(world_ranks_.size(), nullptr);
  }
  if (interrupted) return AsSeenBy(*failure_, name_, world_ranks_[rank]);
  return absl::OkStatus();
}

absl::Status Group::Meet(int rank, Slot& slot, const Operation& op,
                         std::unique_lock<std::mutex>& lock) {
  const int self = world_ranks_[rank];
  if (failure_) return AsSeenBy(*failure_, name_, self);
  slot.ops[rank] = &op;
  const Nanos begin = world_.clock().Now();
  if (++slot.arrived == size()) {
    Commit(slot);
    changed_.notify_all();
  }
  std::string where;
  if (!slot.committed) where = absl::StrCat(Describe(op), " on communicator '", name_, "'");
  while (!slot.committed && !failure_) {
    const std::vector<int> missing = Missing(slot);
    for (int r = 0; r < size() && !failure_; ++r) {
      if (has_left_[r] && (r == rank || slot.ops[r] == nullptr)) {
        KillLocked({absl::StatusCode::kUnavailable, world_ranks_[r],
                    absl::StrCat("has left and will not come to ", Describe(op))});
      }
    }
    if (failure_) break;
    world_.SetWaiting(self, missing, where);
    world_.clock().WaitUntil(changed_, lock, world_.WaitLimit(begin));
    if (slot.committed || failure_ || world_.clock().Now() < world_.WaitLimit(begin)) continue;
    Failure failure = WaitedFor(self, world_.deadline(), Missing(slot), Describe(op));
    failure.what += world_.WhyMissing(Missing(slot));
    KillLocked(failure);
  }
  world_.ClearWaiting(self);
  if (!slot.committed) return AsSeenBy(*failure_, name_, self);
  return absl::OkStatus();
}

void Group::Commit(Slot& slot) {
  for (int r = 1; r < size(); ++r) {
    if (Agree(*slot.ops[0], *slot.ops[r])) continue;
    KillLocked({absl::StatusCode::kInvalidArgument, -1,
                absl::StrCat("its members disagree: rank ", world_ranks_[0], " came to ",
                             Describe(*slot.ops[0]), " as ", Signature(*slot.ops[0]), ", rank ",
                             world_ranks_[r], " to ", Describe(*slot.ops[r]), " as ",
                             Signature(*slot.ops[r]))});
    return;
  }
  slot.committed = true;
  slot.end = world_.links().Book(*slot.ops[0], world_ranks_, world_.clock().Now());
}

void Group::CopyShare(int rank, Slot& slot, std::size_t place) {
  const auto of = [&](int member) -> const Operation& { return PartOf(*slot.ops[member], place); };
  const Operation& op = of(rank);
  switch (op.kind) {
    case OpKind::kAllReduce:
      AllReduceShare(rank, slot);
      return;
    case OpKind::kReduce: {
      const Range share = ShareOf(op.counts[0], rank, size());
      const std::int64_t offset = share.begin * UnitBytes(op);
      ReduceRange(slot, place, offset, At(of(op.root).recv, offset), share.end - share.begin);
      return;
    }
    case OpKind::kBroadcast:
      CopyBytes(op.recv, of(op.root).recv, op.counts[0]);
      return;
    case OpKind::kAllGather: {
      const std::vector<std::int64_t> offsets = PartOffsets(op);
      for (int r = 0; r < size(); ++r) {
        CopyBytes(At(op.recv, offsets[r]), of(r).send, op.counts[r]);
      }
      return;
    }
    case OpKind::kReduceScatter:
      ReduceRange(slot, place, PartOffsets(op)[rank], op.recv, op.counts[rank]);
      return;
    case OpKind::kGather:
      CopyBytes(At(of(op.root).recv, PartOffsets(op)[rank]), op.send, op.counts[rank]);
      return;
    case OpKind::kScatter:
      CopyBytes(op.recv, At(of(op.root).send, PartOffsets(op)[rank]), op.counts[rank]);
      return;
    case OpKind::kBarrier:
      return;
  }
}

void Group::ReduceRange(const Slot& slot, std::size_t place, std::int64_t send_offset, void* to,
                        std::int64_t count) const {
  if (count == 0) return;
  std::vector<const void*> sources;
  sources.reserve(slot.ops.size());
  for (const Operation* op : slot.ops) {
    sources.push_back(At(PartOf(*op, place).send, send_offset));
  }
  const Operation& first = PartOf(*slot.ops[0], place);
  ReduceSources(sources, to, count, first.dtype, first.reduce);
}

void Group::AllReduceShare(int rank, Slot& slot) {
  const Operation& op = *slot.ops[rank];
  const std::int64_t unit = UnitBytes(op);
  const Range own = ShareOf(op.counts[0], rank, size());
  // In place, this overwrites only the range that nobody else reads before the middle.
  ReduceRange(slot, 0, own.begin * unit, At(op.recv, own.begin * unit), own.end - own.begin);
  MeetInTheMiddle(slot);
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank + step) % size();
    const Range share = ShareOf(op.counts[0], peer, size());
    CopyBytes(At(op.recv, share.begin * unit), At(slot.ops[peer]->recv, share.begin * unit),
              (share.end - share.begin) * unit);
  }
}

void Group::MeetInTheMiddle(Slot& slot) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (++slot.reduced == size()) changed_.notify_all();
  changed_.wait(lock, [&] { return slot.reduced == size(); });
}

std::vector<int> Group::Missing(const Slot& slot) const {
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    if (slot.ops[r] == nullptr) missing.push_back(world_ranks_[r]);
  }
  return missing;
}

void Group::Kill(const Failure& failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  KillLocked(failure);
}

void Group::KillLocked(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  world_.NoteFailure(failure, name_, world_ranks_);
  for (int r = 0; r < size(); ++r) {
    if (members_[r] != nullptr) members_[r]->Kill(AsSeenBy(failure, name_, world_ranks_[r]));
  }
  changed_.notify_all();
}

void Group::Leave(int world_rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int r = 0; r < size(); ++r) {
    if (world_ranks_[r] == world_rank) has_left_[r] = true;
  }
  changed_.notify_all();
}

void Group::SetMember(int rank, Member* member) {
  const std::lock_guard<std::mutex> lock(mutex_);
  members_[rank] = member;
  if (member != nullptr && failure_) member->Kill(AsSeenBy(*failure_, name_, world_ranks_[rank]));
}

}  // namespace weft::collectives::local
