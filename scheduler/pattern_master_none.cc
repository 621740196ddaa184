// A build without CBC.
#include "base/check.h"
#include "scheduler/pattern_master.h"

namespace weft::scheduler {

bool PatternMaster::Available() { return false; }

std::unique_ptr<PatternMaster> PatternMaster::Create(const MasterInput&) {
  WEFT_CHECK(false) << "this build has no solver";
  return nullptr;
}

}  // namespace weft::scheduler
