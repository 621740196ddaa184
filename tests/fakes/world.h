// The state behind the fakes: devices, streams, events, and who waits. One lock guards all of it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/fakes/clock.h"
#include "tests/fakes/engine.h"
#include "tests/fakes/memory.h"

namespace weft::fakes {

// The errors that the core itself returns, with cudaError_t's values.
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kMemoryAllocation = 2;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kInvalidResourceHandle = 400;
inline constexpr int kNotReady = 600;
inline constexpr int kLaunchTimeout = 702;
inline constexpr int kNotPermitted = 800;
inline constexpr int kNotSupported = 801;
inline constexpr int kCaptureUnsupported = 900;
inline constexpr int kCaptureInvalidated = 901;
inline constexpr int kCaptureMerge = 902;
inline constexpr int kCaptureUnmatched = 903;
inline constexpr int kCaptureUnjoined = 904;
inline constexpr int kCaptureIsolation = 905;
inline constexpr int kCaptureImplicit = 906;
inline constexpr int kCapturedEvent = 907;
inline constexpr int kCaptureWrongThread = 908;

struct Stream;
struct Capture;
struct Graph;
struct GraphExec;

// A place in a stream: the end of one node.
struct Mark {
  bool done = false;
  Clock clock;
  std::int64_t time_ns = 0;
  const Stream* stream = nullptr;
  std::shared_ptr<const std::string> after;  // the last work before it
};

struct Node {
  enum class Kind { kWork, kRecord, kWait };
  Kind kind = Kind::kWork;
  Work work;
  Stream* stream = nullptr;
  std::vector<std::shared_ptr<Mark>> waits;
  std::shared_ptr<const Clock> host;  // what the host knew
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();
  std::shared_ptr<const std::string> label;
  // With the lock held, when it starts: memory that comes and goes in the stream's order.
  std::function<void(const Site&, const Clock&)> effect;
  bool host_function = false;  // the host learns of its end
  bool unreachable = false;    // enqueued after KillPeer
  bool started = false;
  bool dropped = false;
  int held = 0;  // processors
};

struct Stream {
  int device = 0;
  std::string name;
  std::string number;  // "stream 3"
  std::size_t component = 0;
  int queue = 0;
  int priority = 0;
  unsigned flags = 0;
  bool legacy = false;
  bool inner = false;  // of a graph
  bool destroyed = false;
  Clock clock;  // of what has started
  std::shared_ptr<Node> running;
  std::shared_ptr<Mark> tail;                     // of the last node
  std::shared_ptr<const std::string> last_label;  // of the last work
  std::vector<std::string> waits;  // for events: by name, the streams that had recorded them
  std::shared_ptr<Capture> capture;
  std::size_t branch = 0;  // of the capture

  bool blocking() const { return !legacy && !inner && (flags & 1) == 0; }
  std::string Label() const {
    return "device " + std::to_string(device) + " stream '" + name + "'";
  }
};

struct Event {
  int device = 0;
  unsigned flags = 0;
  bool destroyed = false;
  std::shared_ptr<Mark> record;
  // Recorded in a capture: what it stands behind, as Branch::seen.
  std::shared_ptr<Capture> capture;
  std::size_t captured_branch = 0;
  std::vector<std::size_t> captured_seen;
};

struct Device {
  std::vector<std::deque<std::shared_ptr<Node>>> queues;  // enqueued, not yet started
  std::deque<const Node*> launch_order;                   // those of `queues` that have one
  int processors_held = 0;
  int most_held = 0;  // since Reset()
  std::int64_t unfinished = 0;
  bool in_host_function = false;
  std::shared_ptr<const Clock> host = std::make_shared<Clock>();
  std::vector<Stream*> streams;  // in order of creation
  Stream* legacy = nullptr;
  int numbered = 0;
  std::int64_t fail_allocation = -1;
  int sticky = 0;
  bool killed = false;
  std::set<std::string> loaded;  // kernels that were launched
};

// A host thread in a call of the fakes that waits.
struct Waiter {
  std::string why;
  const std::function<bool()>* done = nullptr;
  int device = 0;
  bool ready = false;
  bool given_up = false;
  std::condition_variable wake;
};

// A thread that has called the fakes.
struct Thread {
  int device = 0;
  int registered = 0;
  int scopes = 0;
  int failed_polls = 0;
  std::int64_t times_blocked = 0;
  int capture_mode = 0;  // cudaStreamCaptureMode
  int last_error = 0;
  bool engine = false;
  Waiter* waiter = nullptr;

  static Thread& Current();
  bool Waits() const { return waiter != nullptr && !waiter->ready; }
  bool IsBlocked() const { return Waits() || scopes > 0 || failed_polls >= 64; }
};

class World {
 public:
  static World& Get();

  std::mutex mutex;
  Options options;
  std::mt19937_64 random{1};

  std::vector<Device> devices;
  std::deque<Stream> streams;  // never erased before Reset: a late use is found
  std::deque<Event> events;
  std::unordered_map<const void*, Stream*> stream_of;
  std::unordered_map<const void*, Event*> event_of;
  std::size_t components = 0;
  Memory memory;
  std::map<const void*, std::string> objects;      // graphs, and the other libraries'
  std::vector<std::shared_ptr<Capture>> captures;  // under way
  std::uint64_t capture_count = 0;
  std::map<const void*, std::shared_ptr<Graph>> graphs;
  std::map<const void*, std::shared_ptr<GraphExec>> execs;
  std::map<std::pair<int, std::string>, std::function<bool(std::int64_t)>> drops;
  std::map<std::tuple<int, std::string>, std::pair<std::int64_t, int>> communicator_failures;
  std::pair<int, std::string> last = {-1, ""};  // device and stream of RunLast()

  std::vector<Fault> faults;
  std::set<std::string> fault_texts;
  std::vector<std::string> executed;
  std::vector<std::function<void()>> on_reset;

  std::set<Thread*> threads;
  std::list<Waiter*> waiters;
  std::condition_variable engine_wake;
  std::condition_variable idle;
  std::uint64_t changes = 0;  // grows with all that can make somebody run
  int came = 0;               // HostThreads since Reset
  int busy = 0;               // works that run without the lock
  bool broken = false;        // a deadlock was found
  bool lazy_loading = true;
  std::int64_t now_ns = 0;

  // All below with the lock held.
  void Report(FaultKind kind, std::string text);
  Memory::Report Reporter();
  int Sticky(int device) const;
  Stream* NewStream(int device, unsigned flags, int priority, bool inner);
  Stream* Legacy(int device);
  Stream* FindStream(const void* handle, int device);  // null: none, or destroyed
  void JoinHost(int device, const Clock& clock);
  // At its stream's end. The stream is not captured.
  void Enqueue(std::shared_ptr<Node> node);
  std::shared_ptr<Node> MakeNode(Node::Kind kind, Stream* stream, Work work);
  // Of a record at the end of the stream.
  std::shared_ptr<Mark> Record(Stream* stream);
  // Hosts are asked again, and the engine.
  void Changed();
  bool Block(std::unique_lock<std::mutex>& lock, const std::string& why,
             const std::function<bool()>& done);
  void DropPending(int device);  // -1: of all
  // Enqueued and not yet finished.
  std::vector<const Node*> Pending() const;
  void StartEngine();
  // HostThreads that others wait for.
  bool Awaits() const { return came > 0 && came < options.host_threads; }

 private:
  bool started_ = false;
};

}  // namespace weft::fakes
