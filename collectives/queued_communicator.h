// The Communicator of every transport: checks arguments and enqueues the operation.
#pragma once

#include <memory>

#include "collectives/member.h"
#include "weft/communicator.h"

namespace weft::collectives {

std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Member> member);

}  // namespace weft::collectives
