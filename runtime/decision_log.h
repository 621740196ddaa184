// The ring of a rank's last decisions: what was issued, started and finished, kept so that a hang
// can be explained after the fact.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "weft/metrics.h"
#include "weft/plan.h"

namespace weft::runtime {

// Thread-safe. Holds the newest `capacity` entries (at least 1).
class DecisionLog {
 public:
  explicit DecisionLog(int capacity) : ring_(capacity) {}

  void Add(const Decision& decision);
  // Oldest first.
  std::vector<Decision> Entries() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Decision> ring_;
  std::size_t added_ = 0;
};

// "step 3 inter issued reduce 'blk.0.wq' 65536 bytes op 17", times relative to the first entry.
std::string Describe(const std::vector<Decision>& decisions, const Plan& plan, int rank);

}  // namespace weft::runtime
