#include "scheduler/limits.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::scheduler {

absl::Status CheckLimits(const PlanLimits& limits) {
  constexpr int kMostPasses = 1000;
  const auto refuse = [](const char* what, std::int64_t value, const char* range) {
    return absl::InvalidArgumentError(
        absl::StrCat("limits: ", what, " is ", value, "; it must be ", range, "."));
  };
  if (limits.collectives_in_flight < 1 || limits.collectives_in_flight > 2) {
    return refuse("collectives_in_flight", limits.collectives_in_flight, "1 or 2");
  }
  if (limits.buffers_in_turn < 1) {
    return refuse("buffers_in_turn", limits.buffers_in_turn, "1 or more");
  }
  if (limits.inter_layers_ahead < 0) {
    return refuse("inter_layers_ahead", limits.inter_layers_ahead, "0 or more");
  }
  if (limits.intra_layers_ahead < 0) {
    return refuse("intra_layers_ahead", limits.intra_layers_ahead, "0 or more");
  }
  if (limits.passes < 1 || limits.passes > kMostPasses) {
    return refuse("passes", limits.passes, "1 to 1000");
  }
  for (const auto& [what, bytes] : {std::pair("bucket_bytes", limits.bucket_bytes),
                                    std::pair("exchange_bytes", limits.exchange_bytes),
                                    std::pair("piece_bytes", limits.piece_bytes),
                                    std::pair("fetched_bytes", limits.fetched_bytes),
                                    std::pair("buffer_bytes", limits.buffer_bytes)}) {
    if (bytes < 0) return refuse(what, bytes, "0 or more");
  }
  return absl::OkStatus();
}

}  // namespace weft::scheduler
