// The creation of a communicator: its members meet in the store, NCCL connects them, and one of
// every kind of collective runs, so that nothing is connected, loaded or allocated once others are
// waiting.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/group_meeting.h"
#include "collectives/nccl/session.h"
#include "collectives/nccl/status.h"

namespace weft::collectives::nccl {
namespace {

// NCCL connects an algorithm when it first picks it, by size: one vector that it treats as large.
constexpr std::int64_t kLargeBytes = std::int64_t{4} << 20;

std::string Text(const ncclUniqueId& id) { return std::string(id.internal, sizeof(id.internal)); }

// What is said of the members that have not come to a place that all pass together.
std::vector<int> Missing(const StoreSession& session, const Membership& membership,
                         const std::string& what) {
  std::vector<int> missing;
  for (const int peer : membership.world_ranks) {
    const std::string name =
        absl::StrCat("group.", EscapedName(membership.name), ".", what, ".", peer);
    if (peer != membership.world_rank() && !session.store().Read(name)) missing.push_back(peer);
  }
  return missing;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Member>> Session::Create(Membership membership) {
  auto member = std::make_shared<Member>(std::move(membership));
  absl::Status connected = Connect(member);
  if (connected.ok()) return member;
  bool known = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    known = std::find(members_.begin(), members_.end(), member) != members_.end();
  }
  // NCCL has begun: what it holds can only be freed together with the rest.
  if (known) {
    Fail({PostKind::kCause, -1, "", AbortedBy(rank(), connected)});
    Close(*member);
  }
  return connected;
}

absl::Status Session::Connect(const std::shared_ptr<Member>& member) {
  const Membership& membership = member->membership;
  GroupMeeting meeting(*this, membership);
  WEFT_RETURN_IF_ERROR(meeting.CheckSameMembers());
  ncclUniqueId id{};
  if (membership.rank == 0) {
    WEFT_RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&id), "ncclGetUniqueId"));
  }
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> ids,
      meeting.Exchange("id", membership.rank == 0 ? Text(id) : std::string("none")));
  if (ids[0].size() != sizeof(id.internal)) {
    return absl::InternalError("the store holds an id that is none");
  }
  std::memcpy(id.internal, ids[0].data(), sizeof(id.internal));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_) return Tell(*end_, membership);
    members_.push_back(member);
  }
  absl::Status status = Initialize(*member, id, meeting.limit());
  if (absl::IsDeadlineExceeded(status)) {
    std::vector<int> missing = Missing(*this, membership, "initialized");
    if (missing.empty()) missing.push_back(rank());
    return meeting.Waited(missing);
  }
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(meeting.Exchange("initialized", "").status());
  WEFT_RETURN_IF_ERROR(WarmUp(*member));
  return meeting.Exchange("warm", "").status();
}

absl::Status Session::Initialize(Member& member, const ncclUniqueId& id, Nanos limit) {
  if (ending_) return StatusOf(member);
  {
    const std::lock_guard<std::mutex> calls(calls_);
    const device::CudaDevice::Current current(device_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // Shared resources would put every collective of the family behind the one before.
    config.splitShare = 0;
    if (options_.max_ctas > 0) config.maxCTAs = options_.max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = member.membership.name.c_str();
#endif
    WEFT_RETURN_IF_ERROR(NcclStatus(ncclCommInitRankConfig(&member.comm, member.membership.size(),
                                                           id, member.membership.rank, &config),
                                    "ncclCommInitRankConfig"));
  }
  absl::Status status;
  const bool done = Poll(limit, [&] {
    const std::lock_guard<std::mutex> calls(calls_);
    if (member.comm == nullptr) return true;  // aborted
    ncclResult_t state = ncclInProgress;
    status = NcclStatus(ncclCommGetAsyncError(member.comm, &state), "ncclCommGetAsyncError");
    if (status.ok()) status = NcclStatus(state, "ncclCommInitRankConfig");
    return !status.ok() || state != ncclInProgress;
  });
  if (ending_) return StatusOf(member);
  if (!done) return absl::DeadlineExceededError("its creation takes too long");
  WEFT_RETURN_IF_ERROR(status);
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> scratch, device_.Allocate(sizeof(float)));
  const std::lock_guard<std::mutex> calls(calls_);
  member.scratch = std::move(scratch);
  return absl::OkStatus();
}

absl::Status Session::WarmUp(Member& member) {
  const int size = member.membership.size();
  const std::int64_t part = kLargeBytes / size / 16 * 16;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> send, device_.Allocate(kLargeBytes));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> recv, device_.Allocate(kLargeBytes));
  // Goes before the memory, and not before the device is through with it, also after a failure.
  const std::unique_ptr<Stream> stream =
      device_.CreateStream("weft warm-up", StreamPriority::kHigh);
  device_.Clear(*stream, send->data(), kLargeBytes);
  device_.Clear(*stream, recv->data(), kLargeBytes);
  device_.Clear(*stream, member.scratch->data(), sizeof(float));

  const OpTag tag{"", "warm-up"};
  std::vector<Operation> ops;
  ops.push_back({OpKind::kBarrier, nullptr, nullptr, {}, DType::kF32, ReduceOp::kSum, 0, tag});
  const auto per_rank = [&](std::int64_t count) { return std::vector<std::int64_t>(size, count); };
  // Kernels differ by type and operation; connections by algorithm alone. Reduce and broadcast run
  // on rings, whose connections serve every root.
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      ops.push_back({OpKind::kAllReduce, send->data(), recv->data(), {1}, dtype, op, 0, tag});
      ops.push_back({OpKind::kReduce, send->data(), recv->data(), {1}, dtype, op, 0, tag});
      ops.push_back(
          {OpKind::kReduceScatter, send->data(), recv->data(), per_rank(1), dtype, op, 0, tag});
    }
  }
  const auto bytes = [&](OpKind kind, std::vector<std::int64_t> counts, int root) {
    return Operation{kind,        send->data(),   recv->data(), std::move(counts),
                     DType::kF32, ReduceOp::kSum, root,         tag};
  };
  ops.push_back(bytes(OpKind::kBroadcast, {1}, 0));
  ops.push_back(bytes(OpKind::kAllGather, per_rank(1), 0));
  ops.push_back(bytes(OpKind::kAllGather, per_rank(part), 0));
  ops.push_back({OpKind::kAllReduce,
                 send->data(),
                 recv->data(),
                 {kLargeBytes / 4},
                 DType::kF32,
                 ReduceOp::kSum,
                 0,
                 tag});
  ops.push_back({OpKind::kReduceScatter, send->data(), recv->data(), per_rank(part / 4),
                 DType::kF32, ReduceOp::kSum, 0, tag});
  // Every pair both ways, as gathers and scatters with any root need them.
  Operation pairs = bytes(OpKind::kScatter, per_rank(1), 0);
  for (int root = 1; root < size; ++root) {
    pairs.joined.push_back(bytes(OpKind::kScatter, per_rank(1), root));
    pairs.joined.back().recv = recv->as<char>() + root;
  }
  ops.push_back(std::move(pairs));
  for (Operation& op : ops) {
    if (absl::Status issued = Issue(member, *stream, std::move(op)); !issued.ok()) return issued;
  }
  const absl::Status done = stream->Synchronize(deadline());
  const absl::Status status = StatusOf(member);
  return status.ok() ? done : status;
}

}  // namespace weft::collectives::nccl
