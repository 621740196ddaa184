// Libraries that are loaded when they are wanted, found as NCCL finds its plug-ins.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weft::base {

// What is looked for, and how the user says where.
struct LibraryRule {
  std::string what;      // in messages: "the CUDA library"
  std::string variable;  // "WEFT_CUDA_PLUGIN"
  std::string prefix;    // "libweft-cuda"
};

// The symbol of the library that the variable names:
//   not set, or empty         <prefix>.so, as the dynamic linker finds it
//   a path or a file name     that file; else, for a value without '/' that is no lib*.so,
//   a suffix                  <prefix>-<value>.so
//   none                      no library
//   STATIC_PLUGIN             the running program and what it has loaded
// The library stays loaded. NotFound says what was tried and what the dynamic linker said.
absl::StatusOr<void*> FindSymbol(const LibraryRule& rule, const std::string& symbol);

// The symbol of a library that the process has loaded already, for whatever reason; null without.
void* LoadedSymbol(const char* library, const char* symbol);

}  // namespace weft::base
