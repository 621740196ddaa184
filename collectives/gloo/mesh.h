// How the members of a new communicator find and connect to each other.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/gloo/session.h"
#include "collectives/gloo/wire.h"
#include "collectives/membership.h"

namespace weft::collectives::gloo {

// Collective over the members; blocks until all are connected. InvalidArgument when they disagree
// on who the members are, DeadlineExceeded naming those that have not come.
absl::StatusOr<std::unique_ptr<Connections>> Connect(Session& session,
                                                     const Membership& membership);

}  // namespace weft::collectives::gloo
