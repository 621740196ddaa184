// Annotations of a build without NVTX, in a program that is linked without anything to carry them
// out.
#include <pthread.h>

#include <cstdio>
#include <string>
#include <type_traits>

#include "base/annotate.h"

static_assert(!weft::base::ToolAttached());

namespace {

constinit const weft::base::Message kMessage(weft::base::Category::kWait, "never seen");

// 0 when all is as it should be.
int Annotate() {
  const weft::base::OpAnnotation op;
  const weft::base::Range of_op(&op, 1);
  const weft::base::Range of_message(kMessage, 2);
  weft::base::LongRange of_label(weft::base::Category::kJob, weft::base::Register("never"), 3);
  of_label.End();
  weft::base::NameThread("a name of more than fifteen characters");
  char name[64] = {};
  (void)pthread_getname_np(pthread_self(), name, sizeof(name));
  if (kMessage.label().handle != nullptr) return 1;
  return std::string(name) == "a name of more " ? 0 : 2;
}

}  // namespace

int main() {
  const int fault = Annotate();
  if (fault != 0) std::printf("fault %d\n", fault);
  return fault;
}
