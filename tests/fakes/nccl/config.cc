#include "tests/fakes/nccl/config.h"

#include <algorithm>
#include <cstring>

#include "tests/fakes/nccl/comm.h"

namespace weft::fakes::nccl {
namespace {

ncclResult_t Bad(const char* field, int value) {
  return Fail(ncclInvalidArgument,
              std::string("ncclConfig_t.") + field + " = " + std::to_string(value));
}

bool Given(int value) { return value != NCCL_CONFIG_UNDEF_INT; }

}  // namespace

ncclResult_t ReadConfig(const ncclConfig_t* given, const Config& base, Config* config) {
  *config = base;
  if (given == nullptr) return ncclSuccess;
  ncclConfig_t full = NCCL_CONFIG_INITIALIZER;
  if (given->magic != full.magic) {
    return Misuse(ncclInvalidArgument, "ncclConfig_t was not made by NCCL_CONFIG_INITIALIZER");
  }
  // Older callers' structures end earlier, newer ones' later.
  std::memcpy(&full, given, std::min(given->size, sizeof full));
  if (given->version < NCCL_VERSION(2, 27, 0)) full.commName = nullptr;
  if (Given(full.blocking) && full.blocking != 0 && full.blocking != 1) {
    return Bad("blocking", full.blocking);
  }
  if (Given(full.splitShare) && full.splitShare != 0 && full.splitShare != 1) {
    return Bad("splitShare", full.splitShare);
  }
  if (Given(full.maxCTAs) && full.maxCTAs <= 0) return Bad("maxCTAs", full.maxCTAs);
  if (Given(full.minCTAs) && full.minCTAs <= 0) return Bad("minCTAs", full.minCTAs);
  if (Given(full.minCTAs) && Given(full.maxCTAs) && full.minCTAs > full.maxCTAs) {
    return Bad("minCTAs, above maxCTAs,", full.minCTAs);
  }
  if (Given(full.blocking)) config->blocking = full.blocking != 0;
  if (Given(full.splitShare)) config->split_share = full.splitShare != 0;
  if (Given(full.maxCTAs)) config->max_ctas = full.maxCTAs;
  if (full.commName) config->name = full.commName;
  return ncclSuccess;
}

}  // namespace weft::fakes::nccl
