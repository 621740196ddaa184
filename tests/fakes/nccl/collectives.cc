// The calls that enqueue: ncclReduce and the like, ncclSend, ncclRecv, ncclGroupStart,
// ncclGroupEnd.
#include <array>
#include <cstring>

#include "tests/fakes/nccl/group.h"

namespace weft::fakes::nccl {
namespace {

ncclResult_t CheckOp(const ncclComm& comm, ncclRedOp_t op, const char* name, Call* call) {
  if (op < ncclNumOps) {
    if (op < 0) return Fail(ncclInvalidArgument, std::string(name) + ": no such reduction");
    if (op != ncclAvg) {
      call->reduction = {.op = op};
    } else if (call->type < ncclFloat16) {
      return Fail(ncclInvalidArgument, "the fake NCCL averages floating-point types only");
    } else {
      call->reduction = Average(call->type, comm.clique->size());
    }
    return ncclSuccess;
  }
  const std::lock_guard lock(Mutex());
  const auto place = static_cast<std::size_t>(op - ncclNumOps);
  if (place >= comm.ops.size() || !comm.ops[place]) {
    return Fail(ncclInvalidArgument, std::string(name) + ": a reduction that was not created");
  }
  if (comm.op_types[place] != call->type) {
    return Fail(ncclInvalidArgument, std::string(name) + ": a reduction of another type");
  }
  call->reduction = *comm.ops[place];
  return ncclSuccess;
}

ncclResult_t CheckArguments(const ncclComm& comm, const char* name, const Call& call) {
  const auto bad = [&](const std::string& what) {
    return Fail(ncclInvalidArgument, std::string(name) + " on " + Describe(comm) + ": " + what);
  };
  if (call.root < 0 || call.root >= comm.clique->size()) {
    return bad("no rank " + std::to_string(call.root));
  }
  if (SizeOf(call.type) == 0) return bad("no such type");
  if (Reduces(call) && !CanReduce(call.type)) return bad("the fake cannot reduce this type");
  if (IsPointToPoint(call) && call.root == comm.rank) {
    return bad("the fake has no messages of a rank to itself");
  }
  if (call.count == 0) return ncclSuccess;
  if (const char* missing = MissingBuffer(call, comm.rank)) {
    return Misuse(ncclInvalidArgument,
                  std::string(name) + " on " + Describe(comm) + ": the " + missing + " is null");
  }
  const OnDevice on_device(comm.device);
  if (Engine::Get().DeviceOf(call.stream) != comm.device) {
    return Misuse(ncclInvalidArgument, std::string(name) + " on " + Describe(comm) +
                                           ": the stream is of another device, or none");
  }
  return ncclSuccess;
}

ncclResult_t Add(ncclComm* comm, const char* name, Call call, ncclRedOp_t op) {
  Group::Scope scope;
  Use use(comm, name, Use::kLaunch);
  if (use.result() != ncclSuccess) return scope.Leave(use.result());
  {
    const std::lock_guard lock(Mutex());
    if (comm->async_error != ncclSuccess) return scope.Leave(comm->async_error);
  }
  ncclResult_t result = CheckArguments(*comm, name, call);
  if (result == ncclSuccess && Reduces(call)) result = CheckOp(*comm, op, name, &call);
  if (result == ncclSuccess) Group::AddCall(comm, call, std::move(use));
  return scope.Leave(result);
}

}  // namespace
}  // namespace weft::fakes::nccl

using namespace weft::fakes::nccl;

ncclResult_t ncclGroupStart() {
  Group::Start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return Group::End(); }

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, "ncclReduce",
             {Function::kReduce, sendbuff, recvbuff, count, datatype, {}, root, stream}, op);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(comm, "ncclBroadcast",
             {Function::kBroadcast, sendbuff, recvbuff, count, datatype, {}, root, stream},
             ncclSum);
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, "ncclAllGather",
             {Function::kAllGather, sendbuff, recvbuff, sendcount, datatype, {}, 0, stream},
             ncclSum);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return Add(comm, "ncclReduceScatter",
             {Function::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, {}, 0, stream},
             op);
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(comm, "ncclAllReduce",
             {Function::kAllReduce, sendbuff, recvbuff, count, datatype, {}, 0, stream}, op);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, "ncclSend",
             {Function::kSend, sendbuff, nullptr, count, datatype, {}, peer, stream}, ncclSum);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Add(comm, "ncclRecv",
             {Function::kRecv, nullptr, recvbuff, count, datatype, {}, peer, stream}, ncclSum);
}
