// The collectives as messages between the members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/gloo/session.h"
#include "collectives/gloo/wire.h"
#include "collectives/membership.h"
#include "collectives/operation.h"

namespace weft::collectives::gloo {

// What one operation works with.
struct Exchange {
  Session& session;
  Connections& connections;
  const Membership& membership;
  std::vector<std::byte>& scratch;
  std::uint64_t sequence;  // equal on all members
  std::function<bool()> interrupted;
};

// Performs `op` with the other members. Nothing on success, what went wrong on the wire otherwise;
// InvalidArgument when the members came with different operations, in the same words on all.
absl::StatusOr<std::optional<Wire::Trouble>> Perform(Exchange& exchange, const Operation& op);

}  // namespace weft::collectives::gloo
