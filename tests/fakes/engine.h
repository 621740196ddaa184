// The engine behind the fake libraries: devices, streams, their work, and the checks of it. The
// libraries turn calls into what is declared here. All thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/fakes/fake.h"

namespace weft::fakes {

struct Access {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};
// Rows at a distance: rows x row_bytes, `stride` bytes apart.
void AddRows(std::vector<Access>& accesses, const void* data, std::int64_t rows,
             std::size_t row_bytes, std::size_t stride, bool write);

struct Node;
class Scheduler;
class World;

// What the members' kernels of one collective have in common: each holds its place in its stream,
// its hardware queue and its processors from its start until all have started; then `run` runs
// once, without the engine's lock, and all of them end. What members read and wrote is ordered by
// their own streams alone: a meeting orders nothing between devices.
class Meeting {
 public:
  Meeting(std::string name, int members, std::function<void()> run);
  const std::string& name() const { return name_; }

  // Its kernels end without `run`, started or not: the communicator was aborted. Their streams'
  // hosts know that they have ended.
  void Abort();
  // Only the kernels of the device: those of its peers wait for it for ever, unless they are
  // aborted as well.
  void AbortOn(int device);

 private:
  friend class Scheduler;
  friend class World;
  bool AbortedOn(int device) const { return aborted_ || aborted_on_.count(device) > 0; }

  std::string name_;
  int members_;
  std::function<void()> run_;
  std::vector<std::shared_ptr<Node>> started_;
  bool sound_ = true;  // no member's memory is at fault
  bool running_ = false;
  bool aborted_ = false;
  std::set<int> aborted_on_;
};

// Is destroyed with the engine's lock held: what its functions hold must not call the engine then.
struct Work {
  std::string name;
  std::vector<Access> accesses;
  // On the engine's thread and without its lock, after the accesses were checked; not at all when
  // one is outside of memory that can be used.
  std::function<void()> run;
  std::shared_ptr<Meeting> meeting;  // of a collective: `run` is the meeting's
  int processors = 0;                // held from start to end
  // Works of one device with a launch order start in this order (NCCL_LAUNCH_ORDER_IMPLICIT).
  bool ordered_launch = false;
  // A copy may reach memory of other devices, and of the host that no call allocated.
  bool copy = false;
  // Of work that is captured: gives the work of one launch of the graph, on the launching thread
  // and without the engine's lock. Empty: this work, again.
  std::function<Work()> replay;
};

// Streams by handle: what cudaStream_t points to. Null and the legacy handles are the current
// device's default stream, which waits for all others and they for it.
using StreamHandle = void*;

// For messages, Streams() and DropWaits.
void SetStreamName(StreamHandle stream, std::string name);

// Errors are cudaError_t as int, 0 without one.
class Engine {
 public:
  static Engine& Get();

  int CurrentDevice();
  int SetCurrentDevice(int device);
  int DeviceOf(StreamHandle stream);  // -1: no stream
  std::string NameOf(StreamHandle stream);

  // Takes the clock of the hosts of the stream's device into the work. A stream of another device
  // than the thread's current one is a misuse. While the stream is captured the work becomes a node
  // of the graph instead.
  int Enqueue(StreamHandle stream, Work work);
  bool IsCapturing(StreamHandle stream);

  // Blocks the calling host thread until `done`, which is asked with the engine's lock held and
  // when something has changed: it may call nothing of the engine, nor take a lock that is held
  // while the engine is called. False when a deadlock has been found and broken meanwhile, or the
  // thread's device has failed.
  bool BlockHost(const std::string& why, const std::function<bool()>& done);
  // `done` of hosts is asked again.
  void Notify();

  void Report(FaultKind kind, std::string text);
  // Of the test's seed.
  std::uint64_t Random();

  // What every call on the device returns: a failed device's error, or that of a broken deadlock.
  int StickyError(int device);
  bool Killed(int device);  // KillPeer
  // FailCommunicator: the ncclResult_t from the `n`th collective on, or 0.
  int CommunicatorFailure(int device, const std::string& communicator, std::int64_t n);

  // For CheckLeaks: objects of the other libraries. Remove says whether it was there.
  void AddObject(const void* object, std::string what);
  bool RemoveObject(const void* object);
  // Called by Reset, without the lock; for the rest of the program.
  void OnReset(std::function<void()> drop);
};

// ---- Kernels: what runs instead of device code.

struct Kernel {
  // Of each parameter, in order: arguments are copied at the launch.
  std::vector<std::size_t> parameter_bytes;
  std::function<void(unsigned grid_x, void** args)> run;
  std::function<std::vector<Access>(unsigned grid_x, void** args)> accesses;
};
// By the demangled name of the __global__ function, with or without its result and parameters:
// "void weft::Fill<float>(float*, int)" and "weft::Fill<float>" are the same. For the rest of the
// program.
void RegisterKernel(std::string demangled_name, Kernel kernel);
// `Parameters` are those of the __global__ function.
template <typename... Parameters>
void RegisterKernel(std::string demangled_name, decltype(Kernel::run) run,
                    decltype(Kernel::accesses) accesses) {
  RegisterKernel(std::move(demangled_name),
                 Kernel{{sizeof(Parameters)...}, std::move(run), std::move(accesses)});
}

}  // namespace weft::fakes
