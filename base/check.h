// Checks of the caller's duties that are not recoverable. Always on.
#pragma once

#include <sstream>

namespace weft::base {

// Prints what has been streamed into it, with the place, to stderr and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line);
  [[noreturn]] ~CheckFailure();
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;

  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives both branches of WEFT_CHECK the type void.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace weft::base

// NOLINTBEGIN(bugprone-macro-parentheses): callers stream into its end.
#define WEFT_CHECK(condition)             \
  (condition) ? (void)0                   \
              : ::weft::base::Voidify() & \
                    ::weft::base::CheckFailure(#condition, __FILE__, __LINE__).stream()
// NOLINTEND(bugprone-macro-parentheses)
