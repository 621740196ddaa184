// A fake CUDA, cuBLASLt and NCCL for tests: what a test sets and reads. The shared libraries with
// the real sonames (libcudart.so.13, libcublasLt.so.13, libnccl.so.2) are thin; all state is in the
// core library that declares this, so that a test which links it sees what the libraries see.
//
// Device memory is host memory of the process, a GPU a set of queues. Nothing runs when it is
// enqueued: an engine picks the next runnable head of a stream with a seeded generator. What it
// cannot show: overlap, speed, kernels' device code, driver deadlocks, memory models, NCCL's own
// allocations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft::fakes {

// When the engine runs device work.
enum class Pace {
  kEager,  // at once, on its own thread, racing the host
  // Only while every host thread that stands for a rank (HostThread) is blocked: in a call of the
  // fakes, or in a Blocked scope. The host runs as far ahead of the device as it can, so that what
  // orders device work is the events between streams and nothing else.
  kLagging,
};

enum class SumOrder { kRing, kAscending };  // kRing: rounds at every hop, as NCCL

struct Options {
  int devices = 8;
  std::uint64_t seed = 1;
  Pace pace = Pace::kLagging;
  // Hardware queues per device; 0: CUDA_DEVICE_MAX_CONNECTIONS, or 8.
  int hardware_queues = 0;
  // Places for thread blocks of collectives per device; each collective holds `channels` of them
  // from its start until all members have started.
  int processors = 132;
  int channels = 2;
  // As on systems whose GPUs reach all memory of the host (cudaDevAttrPageableMemoryAccess): memory
  // that no call allocated may be used in kernels; its bounds and whether it was written are then
  // not known. Otherwise such an access is a fault.
  bool pageable_access = true;
  SumOrder sum_order = SumOrder::kRing;
  // NCCL_LAUNCH_ORDER_IMPLICIT as the library reads it: launches on a device start in their order.
  bool implicit_launch_order = false;
  // Polls of ncclCommGetAsyncError that answer ncclInProgress after each call on a communicator
  // with blocking = 0; its kernels reach their streams with the last of them.
  int in_progress_polls = 0;
  // That many HostThreads are awaited: once the first has come, hosts do not count as blocked
  // before the last has. Without it a rank that blocks before another has begun may be taken for
  // stuck.
  int host_threads = 0;
  // How long nothing may change before hosts that are blocked where the fakes do not see it count
  // as waiting for ever.
  int grace_ms = 10000;
};

enum class FaultKind {
  kRace,          // two accesses, one a write, that no event orders
  kUnwritten,     // a read of memory that nothing wrote
  kBounds,        // outside of an allocation, or of none
  kUseAfterFree,  // also a free while enqueued work still uses it
  kMismatch,      // members of a communicator call different things at the same place
  kOrder,         // two ranks launch collectives of two communicators in different orders
  kDeadlock,      // nothing can run and somebody waits: text is the wait-for graph
  kLeak,          // left at CheckLeaks()
  kMisuse,        // a call that CUDA or NCCL forbids
};
const char* Name(FaultKind kind);

struct Fault {
  FaultKind kind;
  std::string text;  // names streams, works, ranges
};

// Forgets everything and starts anew; nothing may be under way. Objects that are still there are
// dropped without a fault.
void Reset(const Options& options);
const Options& options();

// In the order in which they were found.
std::vector<Fault> Faults();
// One line each; empty without faults. What a test prints.
std::string FaultText();
// Adds a kLeak for every stream, event, communicator, graph, handle and allocation still there.
void CheckLeaks();

// The thread stands for a rank while this lives. One that asks for an event or a stream again and
// again (64 times without another call) counts as blocked.
class HostThread {
 public:
  HostThread();
  ~HostThread();
  HostThread(const HostThread&) = delete;
  HostThread& operator=(const HostThread&) = delete;
};
// The thread is blocked in something the fakes do not see (a condition variable) while this lives.
class Blocked {
 public:
  Blocked();
  ~Blocked();
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
};

// How often the calling thread has waited so far: in a call of the fakes, or in a Blocked scope.
std::int64_t TimesBlocked();

// What has been done, for tests that look at it: "device 0 stream 'weft intra': broadcast ...".
std::vector<std::string> Executed();

// Most places for collectives that were held on a device at once: `channels` for each of them.
int MostProcessorsHeld(int device);

// ---- Faults to inject.

// Of the waits (cudaStreamWaitEvent) enqueued on the named stream of a device (nvtxNameCudaStreamA,
// or "stream N" in order of creation), counted from 0, those for which `drop` says true do nothing.
void DropWaits(int device, std::string stream, std::function<bool(std::int64_t index)> drop);
// Work of the named stream starts only when nothing else can, until Reset(): who does not wait for
// it comes before it.
void RunLast(int device, std::string stream);
// Waits enqueued so far, by the same names: the streams that had recorded the events, "" for none.
std::vector<std::string> WaitsOn(int device, const std::string& stream);
std::vector<std::string> Streams(int device);

// The `n`th allocation from now on (0: the next) on the device fails.
void FailAllocation(int device, std::int64_t n);
// Every call on the device from now on returns this sticky error (a cudaError_t); what was enqueued
// is dropped.
void FailDevice(int device, int cuda_error);
// ncclCommGetAsyncError of the named communicator on the device returns this (an ncclResult_t) from
// its `n`th collective on.
void FailCommunicator(int device, std::string communicator, std::int64_t n, int nccl_result);
// Collectives of the device from now on never start: its process is gone.
void KillPeer(int device);

}  // namespace weft::fakes
