#include "base/shared_library.h"

#include <dlfcn.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/environment.h"

namespace weft::base {
namespace {

// Of this thread's last call.
std::string LinkerSaid() {
  const char* said = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
  return said != nullptr ? said : "no reason given";
}

bool IsLibraryName(const std::string& value) {
  return value.rfind("lib", 0) == 0 && value.size() > 6 &&
         value.compare(value.size() - 3, 3, ".so") == 0;
}

std::vector<std::string> Candidates(const LibraryRule& rule,
                                    const std::optional<std::string>& value) {
  if (!value) return {rule.prefix + ".so"};
  std::vector<std::string> names = {*value};
  if (value->find('/') == std::string::npos && !IsLibraryName(*value)) {
    names.push_back(absl::StrCat(rule.prefix, "-", *value, ".so"));
  }
  return names;
}

}  // namespace

absl::StatusOr<void*> FindSymbol(const LibraryRule& rule, const std::string& symbol) {
  std::optional<std::string> value = EnvironmentVariable(rule.variable);
  if (value == "") value.reset();
  if (value == "none") {
    return absl::NotFoundError(
        absl::StrCat(rule.what, " is not to be used: ", rule.variable, " is none"));
  }
  void* library = nullptr;
  std::string name;
  if (value == "STATIC_PLUGIN") {
    name = "the program";
    library = ::dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
  } else {
    std::vector<std::string> failures;
    for (std::string& candidate : Candidates(rule, value)) {
      library = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        failures.push_back(LinkerSaid());
        continue;
      }
      name = std::move(candidate);
      break;
    }
    if (library == nullptr) {
      return absl::NotFoundError(absl::StrCat(rule.what, " could not be loaded (",
                                              absl::StrJoin(failures, "; "), "); ", rule.variable,
                                              " may name it"));
    }
  }
  void* const found = ::dlsym(library, symbol.c_str());
  if (found != nullptr) return found;
  return absl::NotFoundError(
      absl::StrCat(rule.what, " is not in ", name, ": it has no symbol ", symbol));
}

void* LoadedSymbol(const char* library, const char* symbol) {
  void* const loaded = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  return loaded == nullptr ? nullptr : ::dlsym(loaded, symbol);
}

}  // namespace weft::base
