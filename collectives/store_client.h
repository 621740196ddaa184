// A rank's connection to the rank that serves the store.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "collectives/store_wire.h"
#include "weft/clock.h"

namespace weft::collectives {

// As Store. Connects when it is first used, and again until that works once; a connection that
// breaks later stays broken. From then on what this rank posts is seen by itself alone.
// Thread-safe: one request at a time.
class StoreClient {
 public:
  explicit StoreClient(StoreAddress address) : address_(std::move(address)) {}
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Unavailable while the server cannot be reached.
  absl::Status Post(const std::string& name, const std::string& contents);
  std::optional<std::string> Read(const std::string& name);

 private:
  struct Reply {
    bool so = false;
    std::string contents;
  };
  bool Connect();
  std::optional<Reply> Ask(StoreRequest kind, const std::string& name, const std::string& contents);
  std::optional<Reply> AskConnected(StoreRequest kind, const std::string& name,
                                    const std::string& contents);
  void LearnNames();

  const StoreAddress address_;
  std::mutex mutex_;
  int socket_ = -1;
  bool broken_ = false;
  Nanos next_connect_ = 0;
  // Peers look for names that are not there yet again and again: what there is, is asked for all at
  // once.
  std::set<std::string> names_;
  std::size_t names_known_ = 0;
  Nanos names_learned_ = 0;
  std::map<std::string, std::string> unsent_;
};

}  // namespace weft::collectives
