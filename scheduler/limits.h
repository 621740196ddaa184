// Every field of a plan's limits, and what they may be.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "weft/plan_limits.h"

namespace weft::scheduler {

// Calls visit(name, value) for each: int, bool or std::int64_t. The structured binding does not
// compile when the struct gets a field that is not named here.
template <typename Visitor>
void VisitFields(const PlanLimits& limits, Visitor&& visit) {
  const auto& [collectives_in_flight, buffers_in_turn, bucket_bytes, exchange_bytes, piece_bytes,
               inter_layers_ahead, intra_layers_ahead, keep_through_backward, passes,
               reduce_each_pass, fetched_bytes, buffer_bytes] = limits;
  visit("collectives_in_flight", collectives_in_flight);
  visit("buffers_in_turn", buffers_in_turn);
  visit("bucket_bytes", bucket_bytes);
  visit("exchange_bytes", exchange_bytes);
  visit("piece_bytes", piece_bytes);
  visit("inter_layers_ahead", inter_layers_ahead);
  visit("intra_layers_ahead", intra_layers_ahead);
  visit("keep_through_backward", keep_through_backward);
  visit("passes", passes);
  visit("reduce_each_pass", reduce_each_pass);
  visit("fetched_bytes", fetched_bytes);
  visit("buffer_bytes", buffer_bytes);
}

// InvalidArgument names the field.
absl::Status CheckLimits(const PlanLimits& limits);

}  // namespace weft::scheduler
