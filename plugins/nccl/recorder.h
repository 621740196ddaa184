// The events of one communicator: a bounded pool, what each of them works for, and when it is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/nccl/abi.h"
#include "plugins/nccl/profile_file.h"

namespace weft::nccl_plugin {

enum class Kind : std::uint8_t { kGroupApi, kCallApi, kKernelLaunch, kTask, kProxyOp, kKernel };

// The matrix job that an event works for.
struct Job {
  bool known = false;
  std::int64_t step = 0;
  std::int32_t op = -1;
  std::int32_t matrix = -1;
  char name[48] = {};  // cut where longer
};

// An event's place in the pool and how often that place had been used: stale ones are recognised.
struct EventId {
  std::uint32_t index = 0;  // from 1; 0: none
  std::uint32_t use = 0;
};

struct Event {
  Kind kind = Kind::kGroupApi;
  bool used = false;
  bool stopped = false;
  bool captured = false;  // into a CUDA graph: each replay may name it as parent again
  bool is_p2p = false;
  bool is_send = false;
  std::uint8_t channel = 0;
  std::uint8_t channels = 0;  // of a task: as many kernel events belong to it
  std::uint32_t use = 0;
  EventId parent;
  int pending_children = 0;
  int children = 0;         // ever, launches left out
  int kernels_stopped = 0;  // of a task
  int kernels_lost = 0;     // of a task, to a full pool
  int replay = 0;           // of a task: how many of the same call came before
  std::int64_t begin_ns = 0;
  std::int64_t stop_ns = 0;
  std::int64_t end_ns = 0;   // the latest stop of it and what hangs below it
  std::int64_t mark_ns = 0;  // of a group: its end was called; of a proxy's: data began to move
  std::uint64_t gpu_begin_ns = 0, gpu_end_ns = 0;
  std::uint64_t sequence = 0, count = 0;
  const char* function = nullptr;
  const char* datatype = nullptr;
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  std::int32_t root = -1, peer = -1;
  std::int32_t steps = 0, chunk_bytes = 0, depth = 0;
  Job job;
};

// What did not go as it should, for the file.
struct Counters {
  std::uint64_t events = 0;        // recorded
  std::uint64_t dropped = 0;       // the pool was full
  std::uint64_t unattributed = 0;  // calls and tasks whose job is not known
  std::uint64_t stale = 0;     // stops, states and parents that name no event of the pool any more
  std::uint64_t repeated = 0;  // stops of what had stopped
  std::uint64_t foreign = 0;   // proxy operations of another process
  std::uint64_t unfinished = 0;  // at the end: not stopped, or something below not stopped
};

// Thread-safe.
class Recorder {
 public:
  // `kernels`: NCCL tells of every task's kernels, one for each of its channels.
  Recorder(CommunicatorName name, std::size_t capacity, bool kernels, Logger log);

  // `event` says what NCCL says; kind and fields only. A null `job` leaves it to the parent.
  // Returns no event when the pool is full. `bad_parent`: NCCL named one that is no event of this
  // communicator.
  EventId Start(const Event& event, EventId parent, bool bad_parent, const Job* job,
                std::int32_t rank);
  void Stop(EventId id);
  void Mark(EventId id, std::uint64_t gpu_ns);
  void CountForeign();

  // Writes what is complete, when that was asked for since the last time.
  void FlushIfAsked(std::uint64_t asked);
  // Writes everything and closes the file.
  void Finish();

 private:
  Event* Find(EventId id);
  bool Pending(const Event& event) const { return !event.stopped || event.pending_children > 0; }
  bool Complete(const Event& event) const;
  void Adopt(Event& parent, const Event& child);
  void BecomePending(EventId id);
  void BecomeDone(const Event& event);
  void Drop(Event* parent, Kind kind);
  std::vector<Event> TakeComplete();

  const Logger log_;
  const std::size_t capacity_;
  const bool kernels_;
  std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<std::uint32_t> free_;
  Counters counters_;
  std::int32_t world_rank_ = -1;
  std::atomic<std::uint64_t> flushed_;

  std::mutex file_mutex_;  // taken before mutex_ where both are
  ProfileFile file_;
};

}  // namespace weft::nccl_plugin
