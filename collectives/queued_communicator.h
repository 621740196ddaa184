// The Communicator of transports whose operations run on the host: a stream's worker does them.
#pragma once

#include <memory>

#include "collectives/member.h"
#include "weft/communicator.h"

namespace weft::collectives {

std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Member> member);

}  // namespace weft::collectives
