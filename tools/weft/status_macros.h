// The two macros that may hide control flow; tools see public headers only, so they have their own.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define WEFT_RETURN_IF_ERROR(expression)                                                   \
  do {                                                                                     \
    if (absl::Status weft_status_ = (expression); !weft_status_.ok()) return weft_status_; \
  } while (false)

#define WEFT_CONCAT_INNER_(a, b) a##b
#define WEFT_CONCAT_(a, b) WEFT_CONCAT_INNER_(a, b)

// WEFT_ASSIGN_OR_RETURN(auto x, StatusOrReturningCall());
// NOLINTBEGIN(bugprone-macro-parentheses): declarations and names take no parentheses.
#define WEFT_ASSIGN_OR_RETURN(declaration, expression) \
  WEFT_ASSIGN_OR_RETURN_(WEFT_CONCAT_(weft_or_, __LINE__), declaration, expression)
#define WEFT_ASSIGN_OR_RETURN_(temporary, declaration, expression) \
  auto temporary = (expression);                                   \
  if (!temporary.ok()) return std::move(temporary).status();       \
  declaration = *std::move(temporary)
// NOLINTEND(bugprone-macro-parentheses)
