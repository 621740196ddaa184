// What is asked of the library and its communicators, and their small objects.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>

#include "tests/fakes/nccl/group.h"

using namespace weft::fakes::nccl;

namespace {

ncclResult_t Get(ncclComm_t comm, const char* call, int* to, int ncclComm::*field) {
  const Use use(comm, call, Use::kAsk);
  if (use.result() != ncclSuccess) return use.result();
  if (to == nullptr) return Fail(ncclInvalidArgument, std::string(call) + ": the result is null");
  *to = comm->*field;
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return Fail(ncclInvalidArgument, "ncclGetVersion: the result is null");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  static thread_local std::string text;
  text = LastError();
  return text.c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  if (comm == nullptr || asyncError == nullptr) {
    return Fail(ncclInvalidArgument, "ncclCommGetAsyncError: an argument is null");
  }
  // A watchdog may ask while the owner is in a call: no Use.
  bool gone = !IsComm(comm);
  if (!gone) {
    const std::lock_guard lock(Mutex());
    gone = comm->state == State::kGone;
  }
  if (gone) {
    return Misuse(ncclInvalidArgument,
                  "ncclCommGetAsyncError of a communicator that was destroyed or aborted");
  }
  *asyncError = Poll(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const Use use(comm, "ncclCommCount", Use::kAsk);
  if (use.result() != ncclSuccess) return use.result();
  if (count == nullptr) return Fail(ncclInvalidArgument, "ncclCommCount: the result is null");
  *count = comm->clique->size();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return Get(comm, "ncclCommUserRank", rank, &ncclComm::rank);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return Get(comm, "ncclCommCuDevice", device, &ncclComm::device);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const Use use(comm, "ncclRedOpCreatePreMulSum", Use::kLaunch);
  if (use.result() != ncclSuccess) return use.result();
  if (op == nullptr || scalar == nullptr || !CanReduce(datatype)) {
    return Fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: a null argument or a bad type");
  }
  Reduction reduction{.scaled = true};
  if (residence == ncclScalarHostImmediate) {
    std::memcpy(reduction.immediate.data(), scalar, SizeOf(datatype));
  } else {
    reduction.device_scalar = scalar;
  }
  const std::lock_guard lock(Mutex());
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->ops.size()));
  comm->ops.emplace_back(reduction);
  comm->op_types.push_back(datatype);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const Use use(comm, "ncclRedOpDestroy", Use::kAsk);
  if (use.result() != ncclSuccess) return use.result();
  const std::lock_guard lock(Mutex());
  const int place = static_cast<int>(op) - ncclNumOps;
  if (place < 0 || place >= static_cast<int>(comm->ops.size()) ||
      !comm->ops[static_cast<std::size_t>(place)]) {
    return Fail(ncclInvalidArgument, "ncclRedOpDestroy: a reduction that was not created");
  }
  comm->ops[static_cast<std::size_t>(place)].reset();
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  const Use use(comm, "ncclCommRegister", Use::kLaunch);
  if (use.result() != ncclSuccess) return use.result();
  if (buff == nullptr || size == 0 || handle == nullptr) {
    return Fail(ncclInvalidArgument, "ncclCommRegister: a null argument");
  }
  const std::lock_guard lock(Mutex());
  *handle = &comm->registered[buff];
  comm->registered[buff] = {buff, size};
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const Use use(comm, "ncclCommDeregister", Use::kAsk);
  if (use.result() != ncclSuccess) return use.result();
  const std::lock_guard lock(Mutex());
  const auto erased =
      std::erase_if(comm->registered, [&](const auto& entry) { return &entry.second == handle; });
  return erased ? ncclSuccess : Fail(ncclInvalidArgument, "ncclCommDeregister: no such handle");
}

// As without NVLink: no error, and no window.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void*, size_t, ncclWindow_t*, int) {
  const Use use(comm, "ncclCommWindowRegister", Use::kLaunch);
  return use.result();
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  const Use use(comm, "ncclCommWindowDeregister", Use::kAsk);
  if (use.result() != ncclSuccess || win == nullptr) return use.result();
  return Fail(ncclInvalidArgument, "ncclCommWindowDeregister: no such window");
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  if (ptr == nullptr) return Fail(ncclInvalidArgument, "ncclMemAlloc: the result is null");
  if (cudaMalloc(ptr, size) == cudaSuccess) return ncclSuccess;
  return Fail(ncclUnhandledCudaError, "ncclMemAlloc: out of memory, or the device has failed");
}

ncclResult_t ncclMemFree(void* ptr) {
  if (cudaFree(ptr) == cudaSuccess) return ncclSuccess;
  return Fail(ncclUnhandledCudaError, "ncclMemFree: not memory of ncclMemAlloc");
}
