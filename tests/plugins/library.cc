#include "tests/plugins/library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "plugins/nccl/abi.h"

namespace weft::testing {
namespace {

std::mutex warnings_mutex;
std::vector<std::string> warnings;

}  // namespace

PluginLibrary::PluginLibrary(const std::string& kind, const std::string& value) {
  library_ = ::dlopen(value.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    library_ = ::dlopen(("libnccl-" + kind + "-" + value + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  WEFT_CHECK(library_ != nullptr) << ::dlerror();
}

PluginLibrary::~PluginLibrary() { ::dlclose(library_); }

const void* PluginLibrary::Symbol(const char* name) const {
  const void* const symbol = ::dlsym(library_, name);
  WEFT_CHECK(symbol != nullptr) << name;
  return symbol;
}

Variable::Variable(std::string name, const std::string& value) : name_(std::move(name)) {
  if (value.empty()) {
    ::unsetenv(name_.c_str());
  } else {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
}

Variable::~Variable() { ::unsetenv(name_.c_str()); }

void Log(int level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/,
         const char* format, ...) {
  if (level != nccl_plugin::kLogWarn) return;
  char text[2048];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::lock_guard<std::mutex> lock(warnings_mutex);
  warnings.emplace_back(text);
}

std::vector<std::string> TakeWarnings() {
  const std::lock_guard<std::mutex> lock(warnings_mutex);
  return std::exchange(warnings, {});
}

std::string OutputOf(const std::string& command) {
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char part[4096];
  while (const std::size_t read = std::fread(part, 1, sizeof part, pipe)) output.append(part, read);
  EXPECT_EQ(::pclose(pipe), 0) << command << "\n" << output;
  return output;
}

}  // namespace weft::testing
