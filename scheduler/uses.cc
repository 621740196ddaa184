#include "scheduler/uses.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "scheduler/sets.h"

namespace weft::scheduler {

// Layer l has the buffers of place l mod held; a buffer is as large as the largest that it is for.
std::int64_t UseBuilder::BytesHeld(int held) const {
  std::map<std::pair<int, std::size_t>, std::int64_t> sizes;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t i = 0; i < layers_[l].travellers.size(); ++i) {
      std::int64_t bytes = 0;
      for (std::int32_t m : TravelsWith(plan_, layers_[l].travellers[i])) {
        const PlanMatrix& matrix = plan_.matrices[m];
        bytes += matrix.rows * matrix.cols * static_cast<std::int64_t>(SizeOf(matrix.dtype));
      }
      std::int64_t& size = sizes[{static_cast<int>(l) % held, i}];
      size = std::max(size, bytes);
    }
  }
  std::int64_t sum = 0;
  for (const auto& [place, bytes] : sizes) sum += bytes;
  return sum;
}

absl::Status UseBuilder::Prepare() {
  std::map<std::int32_t, std::size_t> known;
  for (std::int32_t m : Travellers(plan_)) {
    const PlanMatrix& matrix = plan_.matrices[m];
    if (matrix.layout != Layout::kOwned) continue;
    const auto [place, is_new] = known.emplace(matrix.layer, layers_.size());
    if (is_new) layers_.push_back({.number = matrix.layer});
    layers_[place->second].travellers.push_back(m);
  }
  if (layers_.empty()) return absl::OkStatus();
  PlanLimits& limits = plan_.limits;
  const int count = static_cast<int>(layers_.size());
  limits.inter_layers_ahead = std::min(limits.inter_layers_ahead, count - 1);
  held_ = limits.keep_through_backward ? count : limits.inter_layers_ahead + 1;
  // With one rank nothing is fetched.
  const bool bounded = limits.fetched_bytes > 0 && !builder_.alone();
  while (bounded && held_ > 1 && !limits.keep_through_backward &&
         BytesHeld(held_) > limits.fetched_bytes) {
    --held_;
  }
  if (bounded && BytesHeld(held_) > limits.fetched_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fetched weights of ", held_, held_ == 1 ? " layer" : " layers", " take ", BytesHeld(held_),
        " bytes, more than the ", limits.fetched_bytes, " allowed",
        limits.keep_through_backward ? " (all layers are kept through the backward pass)" : "",
        "; layer ", layers_[0].number, " is the first."));
  }
  limits.inter_layers_ahead = std::min(limits.inter_layers_ahead, held_ - 1);
  limits.intra_layers_ahead = std::min(limits.intra_layers_ahead, limits.inter_layers_ahead);

  std::map<std::pair<int, std::size_t>, std::int32_t> buffers;
  for (int l = 0; l < count; ++l) {
    for (std::size_t i = 0; i < layers_[l].travellers.size(); ++i) {
      const auto [place, is_new] = buffers.emplace(std::pair(l % held_, i), 0);
      if (is_new) place->second = builder_.NewBuffer();
      builder_.FetchInto(layers_[l].travellers[i], place->second);
    }
  }
  // Which layer's weights each place has, as the passes go on.
  std::vector<int> holds(held_, -1);
  for (int pass = 0; pass < limits.passes; ++pass) {
    for (const bool backward : {false, true}) {
      for (int i = 0; i < count; ++i) {
        const int layer = backward ? count - 1 - i : i;
        int& place = holds[layer % held_];
        visits_.push_back({layer, place != layer});
        place = layer;
        plan_.uses.push_back({layers_[layer].number, backward});
      }
    }
  }
  return absl::OkStatus();
}

void UseBuilder::FetchLayer(int visit, Lane level, std::int32_t use) {
  if (visit >= static_cast<int>(visits_.size()) || !visits_[visit].fetched) return;
  for (std::int32_t m : layers_[visits_[visit].layer].travellers) builder_.Fetch(m, level, use);
  builder_.EmitWaiting(Trigger::kNeeded);
}

void UseBuilder::EmitVisit(int visit) {
  const PlanLimits& limits = plan_.limits;
  if (visit == 0) {
    for (int v = 0; v < limits.inter_layers_ahead; ++v) FetchLayer(v, Lane::kInter, -1);
    for (int v = 0; v < limits.intra_layers_ahead; ++v) FetchLayer(v, Lane::kIntra, -1);
  }
  // What is needed first goes first, where only one collective may be under way.
  const bool later = limits.intra_layers_ahead < limits.inter_layers_ahead;
  if (later) FetchLayer(visit + limits.intra_layers_ahead, Lane::kIntra, visit);
  FetchLayer(visit + limits.inter_layers_ahead, Lane::kInter, visit);
  if (!later) FetchLayer(visit + limits.intra_layers_ahead, Lane::kIntra, visit);
  for (std::int32_t m : layers_[visits_[visit].layer].travellers) builder_.Use(m, visit);
}

void UseBuilder::EmitForward(int pass) {
  const int backward = (2 * pass + 1) * static_cast<int>(layers_.size());
  for (; next_ < backward; ++next_) EmitVisit(next_);
}

void UseBuilder::EmitBackwardUpTo(std::int32_t m, int pass) {
  // Of another layout, it may share a layer with owned ones; its gradient comes behind their use.
  const auto layer = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& one) {
    return one.number == plan_.matrices[m].layer;
  });
  if (layer == layers_.end()) return;
  const int last_use = (2 * pass + 2) * static_cast<int>(layers_.size()) - 1 -
                       static_cast<int>(layer - layers_.begin());
  for (; next_ <= last_use; ++next_) EmitVisit(next_);
}

}  // namespace weft::scheduler
