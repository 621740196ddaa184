#include "tests/fakes/nccl/clique.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "tests/fakes/nccl/comm.h"

namespace weft::fakes::nccl {

struct Place {
  std::string name;
  std::shared_ptr<Gathered> gathered = std::make_shared<Gathered>();
  std::shared_ptr<Meeting> meeting;
  std::vector<int> ranks;  // of the members
  std::vector<bool> has_come;
  std::vector<Launches> launches;
  std::size_t first = 0;
  std::size_t come = 0;
};

namespace {

void RunAll(Gathered& gathered, SumOrder order) {
  for (std::size_t i = 0; i < gathered.calls[0].size(); ++i) {
    std::vector<Call> calls;
    for (const std::vector<Call>& of_member : gathered.calls) calls.push_back(of_member[i]);
    Run(calls, order);
  }
}

void RunPair(Gathered& gathered) {
  const Call& send = gathered.calls[0][0];
  std::memmove(gathered.calls[1][0].recv, send.send, send.count * SizeOf(send.type));
}

std::shared_ptr<Place> FindPlace(Clique& clique, const Clique::Key& key, std::vector<int> ranks,
                                 const std::string& what) {
  std::shared_ptr<Place>& place = clique.places[key];
  if (place) return place;
  place = std::make_shared<Place>();
  const bool pair = key.from >= 0;
  place->name = "#" + std::to_string(key.sequence) + " of '" + clique.name + "': " + what;
  if (pair)
    place->name += " (ranks " + std::to_string(key.from) + " -> " + std::to_string(key.to) + ")";
  place->gathered->calls.resize(ranks.size());
  place->has_come.resize(ranks.size());
  place->launches.resize(ranks.size());
  place->meeting =
      std::make_shared<Meeting>(place->name, static_cast<int>(ranks.size()),
                                [gathered = place->gathered, pair, order = options().sum_order] {
                                  pair ? RunPair(*gathered) : RunAll(*gathered, order);
                                  gathered->done = true;
                                });
  place->ranks = std::move(ranks);
  return place;
}

std::string Who(const Clique& clique, int rank) {
  return "rank " + std::to_string(rank) + " (device " +
         std::to_string(clique.devices[static_cast<std::size_t>(rank)]) + ")";
}

// Members that share another communicator have to have launched equally much on it.
std::optional<Fault> CheckOrder(const Clique& clique, const Place& place, std::size_t member) {
  for (std::size_t other = 0; other < place.ranks.size(); ++other) {
    if (other == member || !place.has_come[other]) continue;
    const int device = clique.devices[static_cast<std::size_t>(place.ranks[member])];
    const int other_device = clique.devices[static_cast<std::size_t>(place.ranks[other])];
    for (const auto& shared : CliquesOn(device)) {
      if (shared.get() == &clique || shared->broken || shared->RankOn(other_device) < 0) continue;
      const auto count = [&](std::size_t m) {
        const auto found = place.launches[m].find(shared->id);
        return found == place.launches[m].end() ? 0 : found->second;
      };
      const std::int64_t here = count(member), there = count(other);
      if (here == there || !NoteOrderFault(clique.id, shared->id)) continue;
      return Fault{FaultKind::kOrder,
                   "communicators '" + clique.name + "' and '" + shared->name +
                       "' are launched in different orders: before " + place.name + " device " +
                       std::to_string(device) + " launched " + std::to_string(here) +
                       " kernels of '" + shared->name + "', device " +
                       std::to_string(other_device) + " launched " + std::to_string(there)};
    }
  }
  return std::nullopt;
}

// `member` is the index of the one who comes.
Arrival Come(Clique& clique, const Clique::Key& key, const std::shared_ptr<Place>& place,
             std::size_t member, std::vector<Call> calls, const Launches& launches) {
  Arrival arrival{.kernel = {place->gathered, place->meeting}};
  if (place->come == 0) place->first = member;
  place->gathered->calls[member] = std::move(calls);
  place->has_come[member] = true;
  place->launches[member] = launches;
  ++place->come;

  const std::vector<Call>& mine = place->gathered->calls[member];
  const std::vector<Call>& first = place->gathered->calls[place->first];
  const bool pair = key.from >= 0;
  const bool agree =
      pair ? mine[0].count == first[0].count && mine[0].type == first[0].type : Agree(mine, first);
  if (!agree) {
    clique.broken = true;
    arrival.faults.push_back(
        {FaultKind::kMismatch, "members of communicator '" + clique.name + "' disagree at #" +
                                   std::to_string(key.sequence) + ": " +
                                   Who(clique, place->ranks[place->first]) + " calls " +
                                   Text(first) + ", " + Who(clique, place->ranks[member]) +
                                   " calls " + Text(mine)});
    FailMembers(clique, ncclInvalidUsage);
  } else if (!pair) {
    if (auto fault = CheckOrder(clique, *place, member)) arrival.faults.push_back(*fault);
  }
  if (place->come == place->ranks.size()) clique.places.erase(key);
  return arrival;
}

}  // namespace

std::mutex& Mutex() {
  static std::mutex mutex;
  return mutex;
}

int Clique::RankOn(int device) const {
  const auto found = std::find(devices.begin(), devices.end(), device);
  return found == devices.end() ? -1 : static_cast<int>(found - devices.begin());
}

Arrival Arrive(Clique& clique, int rank, std::int64_t sequence, std::vector<Call> calls,
               const Launches& launches) {
  std::vector<int> ranks(clique.members.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const Clique::Key key{.sequence = sequence};
  auto place = FindPlace(clique, key, std::move(ranks), Text(calls));
  return Come(clique, key, place, static_cast<std::size_t>(rank), std::move(calls), launches);
}

Arrival ArrivePair(Clique& clique, int from, int to, std::int64_t sequence, const Call& call) {
  const Clique::Key key{from, to, sequence};
  auto place = FindPlace(clique, key, {from, to}, Text(call));
  return Come(clique, key, place, call.function == Function::kSend ? 0 : 1, {call}, {});
}

}  // namespace weft::fakes::nccl
