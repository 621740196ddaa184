// What a thread has begun between ncclGroupStart and ncclGroupEnd; a call outside is a group of
// one.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/nccl/call.h"
#include "tests/fakes/nccl/comm.h"

namespace weft::fakes::nccl {

// A call that waits for peers or the device. It has begun when it is added to the group.
struct Job {
  ncclComm* comm = nullptr;
  std::string why;             // for the wait-for graph: "ncclCommDestroy of ..."
  std::function<bool()> done;  // takes Mutex() at most
  std::function<ncclResult_t()> finish;
  bool blocking = true;
};

// What the calls of a group on communicators with blocking = 0 still have to do.
struct Progress {
  std::vector<Job> jobs;
  std::vector<std::pair<ncclComm*, std::vector<Call>>> launches;  // in order of their first calls
  std::vector<ncclComm*> comms;
  int polls = 0;        // that answer ncclInProgress, whatever there is to do
  bool ending = false;  // one thread's poll ends it
};

class Group {
 public:
  // A call is inside of the calling thread's group while this lives; then it is at its end.
  class Scope {
   public:
    Scope() { Start(); }
    // Ends the group where it began with the call: `result`, unless that says success.
    ncclResult_t Leave(ncclResult_t result);
  };

  static void Start();
  static ncclResult_t End();
  // False outside of a group.
  static bool Open();

  // Keeps `use` until the group ends.
  static void AddCall(ncclComm* comm, const Call& call, Use use);
  static void AddJob(Job job);
};

// One poll of ncclCommGetAsyncError: ncclInProgress while a call has not ended.
ncclResult_t Poll(ncclComm& comm);

}  // namespace weft::fakes::nccl
