// What libweft.so shows to the program that loads it.
#include <cxxabi.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace {

using Names = std::set<std::string>;

std::string OutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr) << command;
  std::string output;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

// Without the symbol version, and without its node.
Names Exports() {
  std::istringstream lines(OutputOf(WEFT_NM " -D --defined-only " WEFT_LIBRARY));
  Names names;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.find(" A ") != std::string::npos) continue;
    line = line.substr(line.rfind(' ') + 1);
    names.insert(line.substr(0, line.find('@')));
  }
  return names;
}

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string demangled = status == 0 ? text : "";
  std::free(text);
  return demangled;
}

TEST(LibweftExports, CCallsAreThoseOfTheList) {
  Names listed;
  std::ifstream list(WEFT_SYMBOLS);
  for (std::string name; list >> name;) listed.insert(name);
  ASSERT_FALSE(listed.empty());
  Names found;
  for (const std::string& name : Exports()) {
    if (Demangled(name).empty()) found.insert(name);
  }
  EXPECT_EQ(found, listed);
}

TEST(LibweftExports, CxxNamesAreThoseOfNamespaceWeftAlone) {
  int names = 0;
  for (const std::string& name : Exports()) {
    std::string demangled = Demangled(name);
    if (demangled.empty()) continue;
    ++names;
    for (const char* const prefix : {"vtable for ", "typeinfo for ", "typeinfo name for "}) {
      if (demangled.rfind(prefix, 0) == 0) demangled = demangled.substr(std::string(prefix).size());
    }
    ASSERT_EQ(demangled.rfind("weft::", 0), 0u) << demangled;
    EXPECT_TRUE(std::isupper(static_cast<unsigned char>(demangled[6]))) << demangled;
  }
  EXPECT_GT(names, 50) << "libweft.so no longer shows the C++ library";
}

TEST(LibweftExports, WhatTrainersCallIsThere) {
  Names found;
  for (const std::string& name : Exports()) {
    const std::string demangled = Demangled(name);
    found.insert(demangled.substr(0, demangled.find_first_of("([")));
  }
  for (const char* const name :
       {"weft::Runtime::Create", "weft::CreateHostDevice", "weft::CreateGlooTransport",
        "weft::StoreServer::Start", "weft::Job::Wait", "weft::BuildPlan", "weft::Preset",
        "typeinfo for weft::Runtime", "weft::Version"}) {
    EXPECT_TRUE(found.contains(name)) << name;
  }
}

}  // namespace
