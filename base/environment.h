// The process's environment variables.
#pragma once

#include <optional>
#include <string>

namespace weft::base {

// Nothing where it is not set. Not while another thread changes the environment.
std::optional<std::string> EnvironmentVariable(const std::string& name);

// As it was when the process started, whatever has been set since.
std::optional<std::string> EnvironmentVariableAtStart(const std::string& name);

}  // namespace weft::base
