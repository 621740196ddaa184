// Ranks as threads over either transport.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/stream.h"
#include "weft/transport.h"

namespace weft::testing {

// Runs body(rank) on its own thread for every rank and joins them.
void OnEachRank(int ranks, const std::function<void(int)>& body);

// A fresh empty directory below the system's temporary one, removed on destruction.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One transport per rank of `kind` ("local" or "gloo"); the topology's grid gives the extents.
class World {
 public:
  World(const std::string& kind, const LocalTransportOptions& options);
  World(const std::string& kind, int ranks, absl::Duration deadline = absl::Minutes(2));

  int size() const { return static_cast<int>(transports_.size()); }
  Transport& transport(int rank) { return *transports_[rank]; }
  void Destroy(int rank) { transports_[rank].reset(); }

  // By member, in the order of `world_ranks`. A member whose creation fails gets null and a test
  // failure.
  std::vector<std::unique_ptr<Communicator>> Create(const std::string& name,
                                                    const std::vector<int>& world_ranks);
  std::unique_ptr<Stream> NewStream(const std::string& name);

 private:
  void Build(const std::string& kind, const LocalTransportOptions& options);

  std::unique_ptr<TemporaryDirectory> store_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// A transport without ranks that share memory: sizes 0 .. ranks - 1.
std::vector<int> Iota(int ranks);

}  // namespace weft::testing
