#include "tests/fakes/idle.h"

#include "tests/fakes/call.h"

namespace weft::fakes {

int BlockUntilIdle(const std::string& why) {
  Call call(why.c_str());
  return call.error() != 0 ? call.error() : call.BlockUntilIdle(call.thread().device);
}

}  // namespace weft::fakes
