// A communicator as all its members share it: where their calls meet, and whether they agree.
#pragma once

#include <nccl.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/fakes/engine.h"
#include "tests/fakes/nccl/call.h"

struct ncclComm;

namespace weft::fakes::nccl {

// Guards all state of this library. The engine is never called with it held: the engine's thread
// takes it in what it asks of blocked hosts.
std::mutex& Mutex();

// The calls of one kernel's members, and whether the kernels have run.
struct Gathered {
  std::vector<std::vector<Call>> calls;  // by member
  std::atomic<bool> done{false};
};

// A member's kernel as it was told to the engine. It has ended when `gathered->done`, or with its
// meeting's abort.
struct MemberKernel {
  std::shared_ptr<Gathered> gathered;
  std::shared_ptr<Meeting> meeting;
};

// How many kernels a device has launched on each of its communicators, by their ids.
using Launches = std::map<std::int64_t, std::int64_t>;

struct Place;

struct Clique {
  std::int64_t id = 0;
  std::string name;
  std::vector<ncclComm*> members;  // by rank; null until they have come
  std::vector<int> devices;        // by rank
  int come = 0;
  bool broken = false;  // a member has aborted or revoked it, or calls did not agree

  // A kernel of all members, or of the two ends of a send.
  struct Key {
    int from = -1;
    int to = -1;
    std::int64_t sequence = 0;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::shared_ptr<Place>> places;  // where not all have come yet

  int size() const { return static_cast<int>(members.size()); }
  bool complete() const { return come == size(); }
  // -1 where no member is on it.
  int RankOn(int device) const;
};

struct Arrival {
  MemberKernel kernel;
  std::vector<Fault> faults;  // for the caller to report
};

// With Mutex() held: member `rank` brings `calls` to its next kernel of all members. `launches`:
// those of its device so far. Members that disagree break the clique and end the kernel.
Arrival Arrive(Clique& clique, int rank, std::int64_t sequence, std::vector<Call> calls,
               const Launches& launches);
// The `sequence`th send from rank `from` to rank `to`; `call` is one of its ends.
Arrival ArrivePair(Clique& clique, int from, int to, std::int64_t sequence, const Call& call);

}  // namespace weft::fakes::nccl
