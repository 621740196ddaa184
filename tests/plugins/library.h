// Opens plug-ins as NCCL does, and stands in for what NCCL gives them.
#pragma once

#include <string>
#include <vector>

namespace weft::testing {

// The library that NCCL would open for NCCL_<KIND>_PLUGIN=`value`: `value` itself, otherwise
// libnccl-<kind>-<value>.so.
class PluginLibrary {
 public:
  PluginLibrary(const std::string& kind, const std::string& value);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  template <typename Table>
  const Table& Find(const char* symbol) const {
    return *static_cast<const Table*>(Symbol(symbol));
  }

 private:
  const void* Symbol(const char* name) const;
  void* library_;
};

// An environment variable for the time of an object; an empty value unsets it.
class Variable {
 public:
  Variable(std::string name, const std::string& value);
  ~Variable();
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const std::string name_;
};

// NCCL's logger: keeps what it is told. Thread-safe.
void Log(int level, unsigned long subsystems, const char* file, int line, const char* format, ...);
// The warnings since the last call.
std::vector<std::string> TakeWarnings();

// What a command prints; fails the test when it does not end with 0.
std::string OutputOf(const std::string& command);

}  // namespace weft::testing
