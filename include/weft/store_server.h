// A store for ranks without a directory that they share: one of them serves it from its memory.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#pragma GCC visibility push(default)
namespace weft {

// Lives on one rank of a run, until that rank's transport is destroyed. Every rank, this one too,
// gives address() as the `store` of its transport options. When it ends, or its process does, ranks
// can still work and fail, but create no communicators, and their failures are told less well:
// each has its own view.
class StoreServer {
 public:
  // Listens on `host`, an address or name of this machine that the other ranks reach, and `port`,
  // 0: a free one. With `secret` the address holds a random word that others do not know; without,
  // it is "tcp://host:port", which ranks can be told in advance. InvalidArgument for a host that
  // has no address, Unavailable where it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const std::string& host, int port,
                                                            bool secret = true);
  virtual ~StoreServer() = default;

  // "tcp://host:port", with a secret "tcp://host:port/secret".
  virtual const std::string& address() const = 0;
};

}  // namespace weft
#pragma GCC visibility pop
