// What a plan may hold and have under way at once.
#pragma once

#include <cstdint>

namespace weft {

struct PlanLimits {
  // Collectives that a rank has under way at once: 2 (one on each lane), or 1, for devices whose
  // links are one path, as where GPU and NIC share a root complex: intra and inter collectives then
  // take turns in plan order.
  int collectives_in_flight = 2;
  // Matrices (or buckets) whose intermediate buffers of one kind a rank holds at a time, where they
  // are taken in turn (docs/plan.md, "Buffers"). 1 or more: fewer hold less memory, more let
  // communication run ahead.
  int buffers_in_turn = 4;
  // Small matrices that have one owner, or that every rank updates, travel together while their
  // payload is at most this; 0: each on its own.
  std::int64_t bucket_bytes = 256 << 10;
  // Payload of a reduction or broadcast above which it is cut into equal pieces, between which the
  // lane serves others; 0: never.
  std::int64_t piece_bytes = 0;
  // Bytes of buffers on any one rank: everything that Weft allocates for a plan but optimizer state
  // and owned weights. In a request 0 means as many as the plan needs; a plan states how many.
  std::int64_t buffer_bytes = 0;

  friend bool operator==(const PlanLimits&, const PlanLimits&) = default;
};

}  // namespace weft
