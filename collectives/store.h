// The place through which the ranks of a run meet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft::collectives {

class StoreClient;

// A directory, or the address of a StoreServer (weft/store_server.h), whose entries are files here
// too. Files appear whole or not at all. Names are taken as given; EscapedName() makes any text
// one. Thread-safe.
class Store {
 public:
  explicit Store(std::string place);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  bool is_served() const { return client_ != nullptr; }
  // Without an address's secret: for people.
  std::string described() const;

  // NotFound or FailedPrecondition naming the directory when it cannot be used; InvalidArgument for
  // what is no address. Does not wait for a server.
  absl::Status Check() const;
  // AlreadyExists when there is such a file; nobody's file is ever replaced. Unavailable while a
  // server is not there yet.
  absl::Status Post(const std::string& name, const std::string& contents) const;
  // Nothing while there is no such file.
  std::optional<std::string> Read(const std::string& name) const;

 private:
  const std::string place_;
  const std::unique_ptr<StoreClient> client_;  // null for a directory
};

// Letters, digits, '-' and '_' kept, other characters as %xx; long texts end in a hash instead.
std::string EscapedName(const std::string& text);

// FNV-1a, 64 bits.
std::uint64_t Fingerprint(const std::string& text);

}  // namespace weft::collectives
