#include "tests/fakes/nccl/group.h"

#include <algorithm>

#include "tests/fakes/nccl/launch.h"

namespace weft::fakes::nccl {
namespace {

struct ThreadGroup {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Job> jobs;
  std::vector<std::pair<ncclComm*, std::vector<Call>>> launches;
  std::vector<Use> uses;
};
thread_local ThreadGroup group;

std::vector<ncclComm*> CommsOf(const ThreadGroup& of) {
  std::vector<ncclComm*> comms;
  const auto add = [&](ncclComm* comm) {
    if (std::find(comms.begin(), comms.end(), comm) == comms.end()) comms.push_back(comm);
  };
  for (const Job& job : of.jobs) add(job.comm);
  for (const auto& [comm, calls] : of.launches) add(comm);
  return comms;
}

ncclResult_t Worse(ncclResult_t a, ncclResult_t b) { return a != ncclSuccess ? a : b; }

// Each after all have begun, so that what one waits for may be another's doing.
ncclResult_t FinishJobs(std::vector<Job>& jobs) {
  ncclResult_t result = ncclSuccess;
  for (Job& job : jobs) {
    if (!Engine::Get().BlockHost(job.why, job.done)) {
      result = Worse(result, Fail(ncclSystemError, job.why + " has been given up"));
    }
  }
  for (Job& job : jobs) result = Worse(result, job.finish());
  return result;
}

ncclResult_t LaunchAll(const std::vector<std::pair<ncclComm*, std::vector<Call>>>& launches) {
  ncclResult_t result = ncclSuccess;
  for (const auto& [comm, calls] : launches) {
    const ncclResult_t launched = Launch(*comm, calls);
    if (launched != ncclSuccess) {
      const std::lock_guard lock(Mutex());
      comm->async_error = Worse(comm->async_error, launched);
    }
    result = Worse(result, launched);
  }
  return result;
}

ncclResult_t BeginProgress(ThreadGroup& ended) {
  auto progress = std::make_shared<Progress>();
  progress->comms = CommsOf(ended);
  progress->jobs = std::move(ended.jobs);
  progress->launches = std::move(ended.launches);
  progress->polls = options().in_progress_polls;
  const bool done = std::all_of(progress->jobs.begin(), progress->jobs.end(),
                                [](const Job& job) { return job.done(); });
  if (done && progress->polls == 0) {
    ncclResult_t result = ncclSuccess;
    for (Job& job : progress->jobs) result = Worse(result, job.finish());
    return Worse(result, LaunchAll(progress->launches));
  }
  const std::lock_guard lock(Mutex());
  for (ncclComm* comm : progress->comms) comm->progress = progress;
  return ncclInProgress;
}

}  // namespace

void Group::Start() { ++group.depth; }

bool Group::Open() { return group.depth > 0; }

ncclResult_t Group::End() {
  if (group.depth == 0) {
    return Misuse(ncclInvalidUsage, "ncclGroupEnd without an ncclGroupStart");
  }
  if (--group.depth > 0) return ncclSuccess;
  ThreadGroup ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) {
    // What has been destroyed or aborted in it is so all the same.
    std::erase_if(ended.jobs, [](const Job& job) {
      const std::lock_guard lock(Mutex());
      return job.comm->state != State::kGone;
    });
    static_cast<void>(FinishJobs(ended.jobs));
    return ended.error;
  }
  int blocking = 0, nonblocking = 0;
  for (const Job& job : ended.jobs) ++(job.blocking ? blocking : nonblocking);
  for (const auto& [comm, calls] : ended.launches) ++(comm->blocking ? blocking : nonblocking);
  if (blocking > 0 && nonblocking > 0) {
    return Misuse(ncclInvalidArgument,
                  "a group has communicators with blocking = 0 and others with blocking = 1");
  }
  if (nonblocking > 0) return BeginProgress(ended);
  const ncclResult_t result = FinishJobs(ended.jobs);
  return Worse(result, LaunchAll(ended.launches));
}

void Group::AddCall(ncclComm* comm, const Call& call, Use use) {
  group.uses.push_back(std::move(use));
  if (call.count == 0) return;
  auto found = std::find_if(group.launches.begin(), group.launches.end(),
                            [&](const auto& launch) { return launch.first == comm; });
  if (found == group.launches.end()) found = group.launches.insert(found, {comm, {}});
  found->second.push_back(call);
}

void Group::AddJob(Job job) { group.jobs.push_back(std::move(job)); }

ncclResult_t Group::Scope::Leave(ncclResult_t result) {
  if (result != ncclSuccess && group.depth > 1) group.error = result;
  if (result != ncclSuccess && group.depth == 1) {
    group = {};
    return result;
  }
  const ncclResult_t ended = End();
  return result != ncclSuccess ? result : ended;
}

namespace {

// FailCommunicator, also while the collective is under way.
void NoteFailure(ncclComm& comm) {
  std::int64_t last = 0;
  {
    const std::lock_guard lock(Mutex());
    last = comm.collectives - 1;
  }
  const int failure =
      last < 0 ? 0 : Engine::Get().CommunicatorFailure(comm.device, comm.name, last);
  const std::lock_guard lock(Mutex());
  if (failure != 0 && comm.async_error == ncclSuccess) {
    comm.async_error = static_cast<ncclResult_t>(failure);
  }
}

}  // namespace

ncclResult_t Poll(ncclComm& comm) {
  NoteFailure(comm);
  std::shared_ptr<Progress> progress;
  {
    const std::lock_guard lock(Mutex());
    progress = comm.progress;
    if (!progress) return comm.async_error;
    if (progress->polls > 0 && --progress->polls > 0) return ncclInProgress;
  }
  for (const Job& job : progress->jobs) {
    if (!job.done()) return ncclInProgress;
  }
  {
    const std::lock_guard lock(Mutex());
    if (std::exchange(progress->ending, true)) return ncclInProgress;
  }
  ncclResult_t result = ncclSuccess;
  for (Job& job : progress->jobs) result = Worse(result, job.finish());
  result = Worse(result, LaunchAll(progress->launches));
  const std::lock_guard lock(Mutex());
  for (ncclComm* member : progress->comms) {
    member->progress = nullptr;
    member->async_error = Worse(member->async_error, result);
  }
  return options().in_progress_polls > 0 ? ncclInProgress : comm.async_error;
}

}  // namespace weft::fakes::nccl
