// What a rank tells the others about its communicators when something has gone wrong: NCCL itself
// does not know who has not come.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "collectives/board.h"
#include "weft/clock.h"

namespace weft::collectives::nccl {

// A collective that the device has begun and not ended.
struct Waiting {
  Nanos waited = 0;
  std::int64_t launch = 0;  // its place among all collectives of the rank
  std::string operation;    // Describe()
  std::string signature;    // Signature()
};

struct CommunicatorNote {
  std::string name;
  std::vector<int> world_ranks;
  // Collectives that the device has begun. The one waited in is number entered - 1.
  std::int64_t entered = 0;
  std::optional<Waiting> waiting;
};

struct Note {
  std::vector<CommunicatorNote> communicators;
  // What NCCL reported of its own accord, and of which communicator; empty when nothing.
  std::string error;
  std::string error_communicator;
};

std::string Encode(const Note& note);
std::optional<Note> Decode(const std::string& text);

// By world rank; nothing from a rank that has not told.
using Notes = std::vector<std::optional<Note>>;
// How many collectives world rank `rank` had in a communicator that it has closed; nothing while it
// has it.
using ClosedCount =
    std::function<std::optional<std::int64_t>(const std::string& communicator, int rank)>;

// Why nothing goes on, the same from the same notes. In this order:
//  - members that are in the same place with different operations;
//  - a member that has closed the communicator and will not come;
//  - what NCCL reported on the lowest rank;
//  - where the chain of who waits for whom ends, from the lowest rank that waits;
//  - that all have come, so that nobody can be named.
Post StoryOf(const Notes& notes, const ClosedCount& closed);

}  // namespace weft::collectives::nccl
