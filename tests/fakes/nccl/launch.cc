#include "tests/fakes/nccl/launch.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace weft::fakes::nccl {
namespace {

ncclResult_t Check(cudaError_t error) {
  if (error == cudaSuccess) return ncclSuccess;
  return Fail(ncclUnhandledCudaError,
              std::string("Cuda failure '") + cudaGetErrorString(error) + "'");
}

ncclResult_t Enqueue(cudaStream_t stream, Work work) {
  return Check(static_cast<cudaError_t>(Engine::Get().Enqueue(stream, std::move(work))));
}

std::vector<cudaStream_t> StreamsOf(const std::vector<Call>& calls) {
  std::vector<cudaStream_t> streams;
  for (const Call& call : calls) {
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) {
      streams.push_back(call.stream);
    }
  }
  return streams;
}

Work NewWork(const ncclComm& comm, std::string name, const std::vector<Call>& calls) {
  Work work{.name = std::move(name)};
  for (const Call& call : calls) {
    AddAccesses(call, comm.rank, comm.clique->size(), work.accesses);
  }
  return work;
}

// Brings the calls to where the members meet.
Work Meet(ncclComm& comm, const std::vector<Call>& calls) {
  Arrival arrival;
  std::int64_t place = 0;
  {
    const std::lock_guard lock(Mutex());
    if (IsPointToPoint(calls[0])) {
      const Call& call = calls[0];
      const bool sends = call.function == Function::kSend;
      const std::pair<int, int> pair{sends ? comm.rank : call.root, sends ? call.root : comm.rank};
      place = comm.next_pair[pair]++;
      arrival = ArrivePair(*comm.clique, pair.first, pair.second, place, call);
    } else {
      Launches& launches = LaunchesOn(comm.device);
      place = comm.next_kernel++;
      arrival = Arrive(*comm.clique, comm.rank, place, calls, launches);
      ++launches[comm.clique->id];
    }
    ForgetEnded(comm);
  }
  bool broken = false;
  for (Fault& fault : arrival.faults) {
    broken = broken || fault.kind == FaultKind::kMismatch;
    Engine::Get().Report(fault.kind, std::move(fault.text));
  }
  if (broken) arrival.kernel.meeting->Abort();
  Work work = NewWork(comm, arrival.kernel.meeting->name(), calls);
  work.processors = comm.channels;
  work.ordered_launch = options().implicit_launch_order;
  work.meeting = arrival.kernel.meeting;

  const int failure = Engine::Get().CommunicatorFailure(comm.device, comm.name, comm.collectives++);
  const std::lock_guard lock(Mutex());
  if (failure != 0) {
    if (comm.async_error == ncclSuccess) comm.async_error = static_cast<ncclResult_t>(failure);
    // What has failed is the way to the peers: the kernel hangs, and so do theirs.
    work.meeting = std::make_shared<Meeting>(work.name + " (failed)", 2, [] {});
    arrival.kernel = {std::make_shared<Gathered>(), work.meeting};
  }
  if (!broken) comm.kernels.push_back(arrival.kernel);
  return work;
}

Work Alone(ncclComm& comm, const std::vector<Call>& calls) {
  Work work = NewWork(comm, Text(calls) + " of '" + comm.name + "' alone", calls);
  auto gathered = std::make_shared<Gathered>();
  work.run = [gathered, calls] {
    for (const Call& call : calls) RunAlone(call);
    gathered->done = true;
  };
  const std::lock_guard lock(Mutex());
  ForgetEnded(comm);
  comm.kernels.push_back({gathered, nullptr});
  return work;
}

Work MakeWork(ncclComm& comm, const std::vector<Call>& calls) {
  return comm.clique->size() == 1 ? Alone(comm, calls) : Meet(comm, calls);
}

// A captured kernel meets its peers anew at every launch of the graph. While the graph lives it
// counts as one of the communicator's.
Work Captured(ncclComm& comm, const std::vector<Call>& calls) {
  Work work = NewWork(comm, Text(calls) + " of '" + comm.name + "'", calls);
  work.replay = [&comm, calls, graph = comm.graphs] { return MakeWork(comm, calls); };
  return work;
}

// Waits for the last kernel of the communicator, or of those that share its resources, where that
// is in another stream.
ncclResult_t Follow(Resources& resources, cudaStream_t stream) {
  if (!resources.used || resources.stream == stream) return ncclSuccess;
  return Check(cudaStreamWaitEvent(stream, resources.launched, 0));
}

ncclResult_t Advance(Resources& resources, cudaStream_t stream) {
  resources.used = true;
  resources.stream = stream;
  return Check(cudaEventRecord(resources.launched, stream));
}

// `to` waits for what is in `from` now.
ncclResult_t Join(cudaStream_t to, cudaStream_t from) {
  cudaEvent_t event = nullptr;
  ncclResult_t result = Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  if (result != ncclSuccess) return result;
  result = Check(cudaEventRecord(event, from));
  if (result == ncclSuccess) result = Check(cudaStreamWaitEvent(to, event, 0));
  const ncclResult_t destroyed = Check(cudaEventDestroy(event));
  return result != ncclSuccess ? result : destroyed;
}

// The kernels of a group: the collectives together, then each send and receive, ordered by their
// ends and where those meet.
std::vector<std::vector<Call>> Kernels(int rank, const std::vector<Call>& calls) {
  std::vector<Call> collectives, pairs;
  for (const Call& call : calls) (IsPointToPoint(call) ? pairs : collectives).push_back(call);
  const auto ends = [rank](const Call& call) {
    const bool sends = call.function == Function::kSend;
    return std::tuple(std::min(rank, call.root), std::max(rank, call.root),
                      sends ? rank : call.root);
  };
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](const Call& a, const Call& b) { return ends(a) < ends(b); });
  std::vector<std::vector<Call>> kernels;
  if (!collectives.empty()) kernels.push_back(std::move(collectives));
  for (const Call& call : pairs) kernels.push_back({call});
  return kernels;
}

ncclResult_t LaunchInto(ncclComm& comm, cudaStream_t stream, const std::vector<Call>& calls) {
  if (Engine::Get().IsCapturing(stream)) {
    for (const auto& kernel : Kernels(comm.rank, calls)) {
      const ncclResult_t result = Enqueue(stream, Captured(comm, kernel));
      if (result != ncclSuccess) return result;
    }
    return ncclSuccess;
  }
  // A communicator of one rank takes no part in any order.
  const bool alone = comm.clique->size() == 1;
  ncclResult_t result = alone ? ncclSuccess : Follow(*comm.resources, stream);
  for (const auto& kernel : Kernels(comm.rank, calls)) {
    if (result == ncclSuccess) result = Enqueue(stream, MakeWork(comm, kernel));
  }
  return alone || result != ncclSuccess ? result : Advance(*comm.resources, stream);
}

}  // namespace

ncclResult_t Launch(ncclComm& comm, const std::vector<Call>& calls) {
  if (const int error = Engine::Get().StickyError(comm.device)) {
    return Check(static_cast<cudaError_t>(error));
  }
  const OnDevice on_device(comm.device);
  const std::vector<cudaStream_t> streams = StreamsOf(calls);
  for (const cudaStream_t other : streams) {
    if (Engine::Get().IsCapturing(other) != Engine::Get().IsCapturing(streams[0])) {
      return Misuse(ncclInvalidUsage, "a group on " + Describe(comm) +
                                          " has streams that are captured and others that are not");
    }
  }
  ncclResult_t result = ncclSuccess;
  for (std::size_t i = 1; i < streams.size() && result == ncclSuccess; ++i) {
    result = Join(streams[0], streams[i]);
  }
  if (result == ncclSuccess) result = LaunchInto(comm, streams[0], calls);
  for (std::size_t i = 1; i < streams.size() && result == ncclSuccess; ++i) {
    result = Join(streams[i], streams[0]);
  }
  return result;
}

}  // namespace weft::fakes::nccl
