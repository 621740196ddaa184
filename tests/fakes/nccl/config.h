// What of ncclConfig_t the fake looks at.
#pragma once

#include <nccl.h>

#include <string>

namespace weft::fakes::nccl {

struct Config {
  bool blocking = true;
  bool split_share = false;
  int max_ctas = 0;  // 0: as many as there are
  std::string name;  // may be empty
};

// Null: `base` as it is, what a split inherits. Errors name the field.
ncclResult_t ReadConfig(const ncclConfig_t* given, const Config& base, Config* config);

}  // namespace weft::fakes::nccl
