// ncclGetUniqueId, ncclCommInit*, ncclCommSplit: where members find each other.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "tests/fakes/nccl/config.h"
#include "tests/fakes/nccl/group.h"

namespace weft::fakes::nccl {
namespace {

// With Mutex() held. By unique ids; what Reset() drops.
struct Ids {
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::int64_t next = 0;
};

Ids& TheIds() {
  static auto* const ids = new Ids;
  return *ids;
}

// The members of one split of a parent, until all have come.
struct Split {
  struct Member {
    bool come = false;
    int color = NCCL_SPLIT_NOCOLOR;
    int key = 0;
    ncclComm* parent = nullptr;
    ncclComm** child = nullptr;
    Config config;
  };
  std::vector<Member> members;
  int come = 0;
};

// With Mutex() held. By the parent's id and the number of the split.
std::map<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<Split>>& TheSplits() {
  static auto* const splits =
      new std::map<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<Split>>;
  return *splits;
}

[[maybe_unused]] const bool kResets = [] {
  Engine::Get().OnReset([] {
    const std::lock_guard lock(Mutex());
    TheIds().cliques.clear();
    TheSplits().clear();
  });
  return true;
}();

std::shared_ptr<Clique> NewClique(std::string name, int size) {
  auto clique = std::make_shared<Clique>();
  clique->id = NextCliqueId();
  clique->name = name.empty() ? "communicator " + std::to_string(clique->id) : std::move(name);
  clique->members.resize(static_cast<std::size_t>(size));
  clique->devices.resize(static_cast<std::size_t>(size), -1);
  AddClique(clique);
  return clique;
}

std::shared_ptr<Resources> NewResources() {
  auto resources = std::make_shared<Resources>();
  if (cudaEventCreateWithFlags(&resources->launched, cudaEventDisableTiming) != cudaSuccess) {
    return nullptr;
  }
  return resources;
}

// With Mutex() held. The member's place in the clique; its device is known before.
void Enter(ncclComm& comm, const std::shared_ptr<Clique>& clique, int rank, const Config& config) {
  comm.clique = clique;
  comm.rank = rank;
  comm.name = config.name.empty() ? clique->name : config.name;
  comm.blocking = config.blocking;
  comm.split_share = config.split_share;
  comm.channels = options().channels;
  if (config.max_ctas > 0) comm.channels = std::min(comm.channels, config.max_ctas);
  clique->members[static_cast<std::size_t>(rank)] = &comm;
  clique->devices[static_cast<std::size_t>(rank)] = comm.device;
  ++clique->come;
  comm.resources->users.push_back(&comm);
}

bool SharesDevice(const Clique& clique) {
  return std::set<int>(clique.devices.begin(), clique.devices.end()).size() < clique.devices.size();
}

std::string Missing(const Clique& clique) {
  std::string text;
  for (int rank = 0; rank < clique.size(); ++rank) {
    if (clique.members[static_cast<std::size_t>(rank)]) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

Job InitJob(ncclComm* comm, ncclComm_t* handle) {
  std::string why = "ncclCommInitRankConfig of " + Describe(*comm);
  {
    const std::lock_guard lock(Mutex());
    if (!comm->clique->complete())
      why += ", not come when it began: ranks " + Missing(*comm->clique);
  }
  return {
      .comm = comm,
      .why = why,
      .done =
          [comm] {
            const std::lock_guard lock(Mutex());
            return comm->clique->complete();
          },
      .finish =
          [comm, handle] {
            std::unique_lock lock(Mutex());
            const bool complete = comm->clique->complete();
            const bool bad = complete && SharesDevice(*comm->clique);
            comm->state = complete && !bad ? State::kReady : State::kGone;
            const bool first = comm->rank == 0;
            lock.unlock();
            if (complete && !bad) return ncclSuccess;
            Forget(comm);
            *handle = nullptr;
            if (!complete) return Fail(ncclSystemError, "not all members have come");
            const std::string text =
                "two members of communicator '" + comm->clique->name + "' are on one device";
            return first ? Misuse(ncclInvalidUsage, text) : Fail(ncclInvalidUsage, text);
          },
      .blocking = comm->blocking,
  };
}

ncclResult_t Init(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* given) {
  if (handle == nullptr) return Fail(ncclInvalidArgument, "the address of a communicator is null");
  *handle = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return Fail(ncclInvalidArgument,
                "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " ranks");
  }
  Config config;
  if (const ncclResult_t result = ReadConfig(given, {}, &config)) return result;
  const int device = Engine::Get().CurrentDevice();
  if (Engine::Get().StickyError(device) != 0) {
    return Fail(ncclUnhandledCudaError, "the device has failed");
  }
  ncclComm* const comm = NewComm();
  comm->device = device;
  comm->resources = NewResources();
  if (!comm->resources) return Fail(ncclUnhandledCudaError, "no event could be created");
  std::string why_not;
  {
    const std::lock_guard lock(Mutex());
    std::shared_ptr<Clique>& clique =
        TheIds().cliques[std::string(id.internal, sizeof id.internal)];
    if (!clique) clique = NewClique(config.name, ranks);
    if (clique->size() != ranks) {
      why_not = "of " + std::to_string(ranks) + " ranks, another member of " +
                std::to_string(clique->size());
    } else if (clique->members[static_cast<std::size_t>(rank)]) {
      why_not = "rank " + std::to_string(rank) + " twice";
    } else {
      Enter(*comm, clique, rank, config);
    }
  }
  if (!why_not.empty()) {
    static_cast<void>(cudaEventDestroy(comm->resources->launched));
    comm->state = State::kGone;
    return Misuse(ncclInvalidArgument, "ncclCommInitRank with one unique id: " + why_not);
  }
  Remember(comm);
  Engine::Get().Notify();
  *handle = comm;
  Group::AddJob(InitJob(comm, handle));
  return ncclSuccess;
}

// With Mutex() held, when all have come: the children, their members ordered by (key, parent rank).
void MakeChildren(Split& split) {
  std::map<int, std::vector<std::size_t>> by_color;
  for (std::size_t rank = 0; rank < split.members.size(); ++rank) {
    if (split.members[rank].color != NCCL_SPLIT_NOCOLOR) {
      by_color[split.members[rank].color].push_back(rank);
    }
  }
  for (auto& [color, ranks] : by_color) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) {
      return split.members[a].key < split.members[b].key;
    });
    const auto clique =
        NewClique(split.members[ranks[0]].config.name, static_cast<int>(ranks.size()));
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      Split::Member& member = split.members[ranks[place]];
      Enter(**member.child, clique, static_cast<int>(place), member.config);
      (*member.child)->state = State::kReady;
    }
  }
}

ncclResult_t BeginSplit(ncclComm* parent, int color, int key, ncclComm_t* handle,
                        const ncclConfig_t* given) {
  if (handle == nullptr) return Fail(ncclInvalidArgument, "the address of a communicator is null");
  *handle = nullptr;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return Fail(ncclInvalidArgument, "ncclCommSplit with color " + std::to_string(color));
  }
  Config config;
  const Config inherited{.blocking = parent->blocking,
                         .split_share = parent->split_share,
                         .max_ctas = parent->channels};
  if (const ncclResult_t result = ReadConfig(given, inherited, &config)) return result;
  auto child = std::make_shared<ncclComm*>(nullptr);
  if (color != NCCL_SPLIT_NOCOLOR) {
    *child = NewComm();
    (*child)->device = parent->device;
    const OnDevice on_device(parent->device);
    (*child)->resources = config.split_share ? parent->resources : NewResources();
    if (!(*child)->resources) return Fail(ncclUnhandledCudaError, "no event could be created");
  }
  std::shared_ptr<Split> split;
  {
    const std::lock_guard lock(Mutex());
    auto& found = TheSplits()[{parent->clique->id, parent->next_split++}];
    if (!found) {
      found = std::make_shared<Split>();
      found->members.resize(parent->clique->members.size());
    }
    split = found;
    split->members[static_cast<std::size_t>(parent->rank)] = {true,   color,       key,
                                                              parent, child.get(), config};
    if (++split->come == parent->clique->size()) MakeChildren(*split);
  }
  Engine::Get().Notify();
  Group::AddJob({
      .comm = parent,
      .why = "ncclCommSplit of " + Describe(*parent),
      .done =
          [split] {
            const std::lock_guard lock(Mutex());
            return split->come == static_cast<int>(split->members.size());
          },
      .finish =
          [split, child, handle] {
            std::unique_lock lock(Mutex());
            const bool complete = split->come == static_cast<int>(split->members.size());
            lock.unlock();
            if (!complete) return Fail(ncclSystemError, "not all members have come to the split");
            if (*child) Remember(*child);
            *handle = *child;
            return ncclSuccess;
          },
      .blocking = parent->blocking,
  });
  return ncclSuccess;
}

}  // namespace
}  // namespace weft::fakes::nccl

using namespace weft::fakes::nccl;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return Fail(ncclInvalidArgument, "the address of a unique id is null");
  const std::lock_guard lock(Mutex());
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = "fake id " + std::to_string(TheIds().next++);
  std::copy(text.begin(), text.end(), id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  Group::Scope scope;
  return scope.Leave(Init(comm, nranks, commId, rank, config));
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return ncclCommInitRankConfig(comm, nranks, commId, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  Group::Scope scope;
  const Use use(comm, "ncclCommSplit", Use::kLaunch);
  if (use.result() != ncclSuccess) return scope.Leave(use.result());
  return scope.Leave(BeginSplit(comm, color, key, newcomm, config));
}
