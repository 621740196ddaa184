// ncclCommFinalize, Destroy, Abort, Revoke: the ends of a communicator.
#include <algorithm>

#include "tests/fakes/idle.h"
#include "tests/fakes/nccl/group.h"

namespace weft::fakes::nccl {
namespace {

// Ends the communicator's kernels on its device, also those of the others that share its
// resources; those of its peers wait for them for ever.
void EndKernels(ncclComm& comm) {
  std::vector<std::shared_ptr<Meeting>> meetings;
  {
    const std::lock_guard lock(Mutex());
    comm.resources->aborted = true;
    for (ncclComm* user : comm.resources->users) {
      user->clique->broken = true;
      for (const MemberKernel& kernel : user->kernels) {
        if (kernel.meeting) meetings.push_back(kernel.meeting);
      }
      user->kernels.clear();
    }
  }
  for (const auto& meeting : meetings) meeting->AbortOn(comm.device);
  Engine::Get().Notify();
}

// The memory is given back once the device has nothing to do, and no graph has kernels of the
// communicator.
Job Reclaim(ncclComm* comm, const char* call) {
  const std::string why = std::string(call) + " of " + Describe(*comm);
  return {
      .comm = comm,
      .why = why + ", of which captured graphs have kernels",
      .done = [comm] { return comm->graphs.use_count() == 1; },
      .finish =
          [comm, why] {
            const OnDevice on_device(comm->device);
            const bool idle = BlockUntilIdle(why) == 0;
            cudaEvent_t unused = nullptr;
            {
              const std::lock_guard lock(Mutex());
              comm->kernels.clear();
              std::erase(comm->resources->users, comm);
              if (comm->resources->users.empty()) unused = comm->resources->launched;
            }
            // Of a failed device, or after a deadlock, it is gone anyway.
            if (unused) static_cast<void>(cudaEventDestroy(unused));
            Forget(comm);
            return idle ? ncclSuccess : Fail(ncclUnhandledCudaError, why + " failed");
          },
      .blocking = true,
  };
}

bool SetState(ncclComm& comm, State state) {
  const std::lock_guard lock(Mutex());
  comm.progress = nullptr;
  return std::exchange(comm.state, state) != state;
}

bool InProgress(const ncclComm& comm) {
  const std::lock_guard lock(Mutex());
  return comm.progress != nullptr;
}

State StateOf(const ncclComm& comm) {
  const std::lock_guard lock(Mutex());
  return comm.state;
}

ncclResult_t Finalize(ncclComm* comm) {
  const State state = StateOf(*comm);
  if (state != State::kReady) {
    return Misuse(ncclInvalidArgument, "ncclCommFinalize of " + Describe(*comm) +
                                           (state == State::kRevoked ? " after ncclCommRevoke"
                                                                     : " for the second time"));
  }
  SetState(*comm, State::kFinalized);
  const bool polls = !comm->blocking;
  Group::AddJob({
      .comm = comm,
      .why = "ncclCommFinalize of " + Describe(*comm),
      // Asked by polls alone where there are polls: then it may call the engine.
      .done =
          [comm, polls] {
            return !polls || cudaEventQuery(comm->resources->launched) != cudaErrorNotReady;
          },
      .finish =
          [comm] {
            return cudaEventSynchronize(comm->resources->launched) == cudaSuccess
                       ? ncclSuccess
                       : Fail(ncclUnhandledCudaError, "the device has failed");
          },
      .blocking = comm->blocking,
  });
  return ncclSuccess;
}

ncclResult_t Revoke(ncclComm* comm, int flags) {
  if (flags != NCCL_REVOKE_DEFAULT) {
    return Fail(ncclInvalidArgument, "ncclCommRevoke with flags " + std::to_string(flags));
  }
  const State state = StateOf(*comm);
  if (state == State::kInitializing) {
    return Misuse(ncclInvalidArgument,
                  "ncclCommRevoke of " + Describe(*comm) + " before all members have come");
  }
  if (!SetState(*comm, State::kRevoked)) {
    return Misuse(ncclInvalidArgument, "ncclCommRevoke of " + Describe(*comm) + " twice");
  }
  EndKernels(*comm);
  // The kernels have ended, what is before them in their streams may still run.
  Group::AddJob({
      .comm = comm,
      .why = "ncclCommRevoke of " + Describe(*comm),
      .done = [] { return true; },
      .finish = [] { return ncclSuccess; },
      .blocking = comm->blocking,
  });
  return ncclSuccess;
}

}  // namespace
}  // namespace weft::fakes::nccl

using namespace weft::fakes::nccl;

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group::Scope scope;
  const Use use(comm, "ncclCommFinalize", Use::kAsk);
  if (use.result() != ncclSuccess) return scope.Leave(use.result());
  return scope.Leave(Finalize(comm));
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group::Scope scope;
  Use use(comm, "ncclCommDestroy", Use::kTeardown);
  if (use.result() != ncclSuccess) return scope.Leave(use.result());
  if (InProgress(*comm)) {
    return scope.Leave(Misuse(ncclInvalidUsage, "ncclCommDestroy of " + Describe(*comm) +
                                                    " before its previous call has ended"));
  }
  SetState(*comm, State::kGone);
  Group::AddJob(Reclaim(comm, "ncclCommDestroy"));
  return scope.Leave(ncclSuccess);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Group::Scope scope;
  Use use(comm, "ncclCommAbort", Use::kTeardown);
  if (use.result() != ncclSuccess) return scope.Leave(use.result());
  SetState(*comm, State::kGone);
  EndKernels(*comm);
  Group::AddJob(Reclaim(comm, "ncclCommAbort"));
  return scope.Leave(ncclSuccess);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  Group::Scope scope;
  Use use(comm, "ncclCommRevoke", Use::kTeardown);
  if (use.result() != ncclSuccess) return scope.Leave(use.result());
  return scope.Leave(Revoke(comm, revokeFlags));
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int*, int, ncclComm_t*, ncclConfig_t*, int) {
  Group::Scope scope;
  const Use use(comm, "ncclCommShrink", Use::kAsk);
  if (use.result() != ncclSuccess) return scope.Leave(use.result());
  return scope.Leave(Fail(ncclInvalidUsage, "the fake NCCL has no ncclCommShrink"));
}
