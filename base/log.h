// Says a sentence to whoever listens (weft/log.h).
#pragma once

#include <string>

#include "weft/log.h"

namespace weft::base {

void Log(LogLevel level, const std::string& sentence);

}  // namespace weft::base
