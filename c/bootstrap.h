// How ranks meet without a directory of their own.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/c/types.h"
#include "weft/store_server.h"

namespace weft::c {

// Over the trainer's own callbacks.
class Bootstrap {
 public:
  // `config` outlives it.
  explicit Bootstrap(const weftTransportConfig_t& config) : config_(config) {}

  // Collective: rank 0's `text`, or the failure of the lowest rank that has one, the same on all
  // ranks. InvalidArgument where all_gather mixes up ranks, or these mean different worlds.
  absl::StatusOr<std::string> Agree(const absl::Status& own, const std::string& text) const;
  // The trainer's barrier, where there is one.
  absl::Status Meet() const;

 private:
  const weftTransportConfig_t& config_;
};

// For rank 0: a server at the address "tcp://host:port"; null for a directory, which needs none.
absl::StatusOr<std::unique_ptr<StoreServer>> ServerFor(const std::string& store);

}  // namespace weft::c
