#include "collectives/nccl/calls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/status.h"

namespace weft::collectives::nccl {
namespace {

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
  }
  return ncclNumTypes;
}

// Never ncclAvg: it scales in the wire's type before the sum.
ncclRedOp_t OpOf(ReduceOp op) { return op == ReduceOp::kSum ? ncclSum : ncclMax; }

bool AllEqual(const std::vector<std::int64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](std::int64_t count) { return count == counts[0]; });
}

// The calls of one operation; the first error stays.
class Caller {
 public:
  explicit Caller(const CallTarget& target) : target_(target) {}

  const absl::Status& status() const { return status_; }

  void Check(ncclResult_t result, std::string_view call) {
    status_.Update(NcclStatus(result, call));
  }

  // What a rank sends to itself. Before the group: inside one it would have no place.
  void CopyOwnPart(const Operation& op) {
    if (op.kind != OpKind::kGather && op.kind != OpKind::kScatter) return;
    if (target_.rank != op.root || op.counts[op.root] == 0) return;
    const std::int64_t offset = PartOffsets(op)[op.root];
    const bool gather = op.kind == OpKind::kGather;
    const char* from = static_cast<const char*>(op.send) + (gather ? 0 : offset);
    char* to = static_cast<char*>(op.recv) + (gather ? offset : 0);
    if (from == to) return;
    const cudaError_t error = cudaMemcpyAsync(
        to, from, static_cast<std::size_t>(op.counts[op.root]), cudaMemcpyDefault, target_.stream);
    if (error != cudaSuccess) {
      status_.Update(
          absl::InternalError(absl::StrCat("cudaMemcpyAsync failed: ", cudaGetErrorString(error))));
    }
  }

  void Call(const Operation& op) {
    switch (op.kind) {
      case OpKind::kAllReduce:
        if (op.counts[0] == 0) return;
        return Check(ncclAllReduce(op.send, op.recv, Count(op.counts[0]), TypeOf(op.dtype),
                                   OpOf(op.reduce), target_.comm, target_.stream),
                     "ncclAllReduce");
      case OpKind::kReduce:
        return Reduce(op.send, op.recv, op.counts[0], op, op.root);
      case OpKind::kBroadcast:
        return Broadcast(op.recv, op.recv, op.counts[0], op.root);
      case OpKind::kAllGather:
        return AllGather(op);
      case OpKind::kReduceScatter:
        return ReduceScatter(op);
      case OpKind::kGather:
        return Gather(op);
      case OpKind::kScatter:
        return Scatter(op);
      case OpKind::kBarrier:
        return Check(ncclAllReduce(target_.scratch, target_.scratch, 1, ncclFloat32, ncclSum,
                                   target_.comm, target_.stream),
                     "ncclAllReduce");
    }
  }

 private:
  static std::size_t Count(std::int64_t count) { return static_cast<std::size_t>(count); }

  void Reduce(const void* send, void* recv, std::int64_t count, const Operation& op, int root) {
    if (count == 0) return;
    Check(ncclReduce(send, target_.rank == root ? recv : nullptr, Count(count), TypeOf(op.dtype),
                     OpOf(op.reduce), root, target_.comm, target_.stream),
          "ncclReduce");
  }

  void Broadcast(const void* send, void* recv, std::int64_t bytes, int root) {
    if (bytes == 0) return;
    Check(ncclBroadcast(send, recv, Count(bytes), ncclUint8, root, target_.comm, target_.stream),
          "ncclBroadcast");
  }

  void AllGather(const Operation& op) {
    if (AllEqual(op.counts)) {
      if (op.counts[0] == 0) return;
      return Check(ncclAllGather(op.send, op.recv, Count(op.counts[0]), ncclUint8, target_.comm,
                                 target_.stream),
                   "ncclAllGather");
    }
    const std::vector<std::int64_t> offsets = PartOffsets(op);
    for (int r = 0; r < target_.size; ++r) {
      char* part = static_cast<char*>(op.recv) + offsets[r];
      Broadcast(r == target_.rank ? op.send : part, part, op.counts[r], r);
    }
  }

  void ReduceScatter(const Operation& op) {
    if (AllEqual(op.counts)) {
      if (op.counts[0] == 0) return;
      return Check(ncclReduceScatter(op.send, op.recv, Count(op.counts[0]), TypeOf(op.dtype),
                                     OpOf(op.reduce), target_.comm, target_.stream),
                   "ncclReduceScatter");
    }
    const std::vector<std::int64_t> offsets = PartOffsets(op);
    for (int r = 0; r < target_.size; ++r) {
      Reduce(static_cast<const char*>(op.send) + offsets[r], op.recv, op.counts[r], op, r);
    }
  }

  void Send(const void* data, std::int64_t bytes, int peer) {
    if (bytes == 0) return;
    Check(ncclSend(data, Count(bytes), ncclUint8, peer, target_.comm, target_.stream), "ncclSend");
  }

  void Receive(void* data, std::int64_t bytes, int peer) {
    if (bytes == 0) return;
    Check(ncclRecv(data, Count(bytes), ncclUint8, peer, target_.comm, target_.stream), "ncclRecv");
  }

  void Gather(const Operation& op) {
    if (target_.rank != op.root) return Send(op.send, op.counts[target_.rank], op.root);
    const std::vector<std::int64_t> offsets = PartOffsets(op);
    for (int r = 0; r < target_.size; ++r) {
      if (r != op.root) Receive(static_cast<char*>(op.recv) + offsets[r], op.counts[r], r);
    }
  }

  void Scatter(const Operation& op) {
    if (target_.rank != op.root) return Receive(op.recv, op.counts[target_.rank], op.root);
    const std::vector<std::int64_t> offsets = PartOffsets(op);
    for (int r = 0; r < target_.size; ++r) {
      if (r != op.root) Send(static_cast<const char*>(op.send) + offsets[r], op.counts[r], r);
    }
  }

  const CallTarget& target_;
  absl::Status status_;
};

bool IsOneCall(const Operation& op) {
  return op.joined.empty() && op.kind != OpKind::kGather && op.kind != OpKind::kScatter &&
         (!IsPerRank(op.kind) || AllEqual(op.counts));
}

}  // namespace

bool MovesNothing(const Operation& op) {
  for (std::size_t i = 0; i < PartsOf(op); ++i) {
    if (PartOf(op, i).kind == OpKind::kBarrier || TotalBytes(PartOf(op, i)) > 0) return false;
  }
  return true;
}

absl::Status Call(const Operation& op, const CallTarget& target) {
  Caller caller(target);
  for (std::size_t i = 0; i < PartsOf(op); ++i) caller.CopyOwnPart(PartOf(op, i));
  const bool grouped = !IsOneCall(op);
  if (grouped) caller.Check(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t i = 0; i < PartsOf(op); ++i) caller.Call(PartOf(op, i));
  if (grouped) caller.Check(ncclGroupEnd(), "ncclGroupEnd");
  return caller.status();
}

}  // namespace weft::collectives::nccl
