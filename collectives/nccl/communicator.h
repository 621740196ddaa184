// The Communicator over NCCL.
#pragma once

#include <memory>

#include "collectives/nccl/session.h"
#include "weft/communicator.h"

namespace weft::collectives::nccl {

// Destruction waits for the communicator's work.
std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Session> session,
                                               std::shared_ptr<Member> member);

}  // namespace weft::collectives::nccl
