// Statuses as results of the C ABI, and back.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "weft/c/types.h"

namespace weft::base {

weftResult_t ResultOf(const absl::Status& status);
// What a callback of the trainer's has returned; `what` names it in the sentence.
absl::Status StatusOf(weftResult_t result, std::string_view what);
// A few words; never null.
const char* Words(weftResult_t result);

}  // namespace weft::base
