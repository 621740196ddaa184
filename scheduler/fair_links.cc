#include "scheduler/fair_links.h"

#include <algorithm>
#include <limits>

namespace weft::scheduler {

int FairLinks::Begin(absl::Span<const LinkUse> uses, double full_rate) {
  int id = static_cast<int>(transfers_.size());
  if (free_.empty()) {
    transfers_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  transfers_[id] = {.uses = uses, .full_rate = full_rate};
  for (const LinkUse& use : uses) links_[use.link].transfers.emplace_back(id, use.share);
  Touch(transfers_[id]);
  came_.push_back(id);
  return id;
}

void FairLinks::End(int transfer) {
  for (const LinkUse& use : transfers_[transfer].uses) {
    std::erase_if(links_[use.link].transfers,
                  [&](const std::pair<int, double>& one) { return one.first == transfer; });
  }
  Touch(transfers_[transfer]);
  std::erase(came_, transfer);
  free_.push_back(transfer);
}

void FairLinks::Touch(const Transfer& transfer) {
  for (const LinkUse& use : transfer.uses) {
    State& link = links_[use.link];
    if (!link.dirty) dirty_.push_back(use.link);
    link.dirty = true;
  }
}

void FairLinks::Gather(int transfer) {
  if (transfers_[transfer].gathered) return;
  transfers_[transfer].gathered = true;
  changed_.emplace_back(transfer, 0);
}

const std::vector<std::pair<int, double>>& FairLinks::Settle() {
  changed_.clear();
  tight_.clear();
  for (const int transfer : came_) Gather(transfer);
  came_.clear();
  for (const std::int32_t id : dirty_) {
    State& link = links_[id];
    double load = 0;
    for (const auto& [transfer, share] : link.transfers) load += share;
    const bool was_tight = link.tight;
    link.tight = load > 1;
    link.dirty = false;
    if (!link.tight && !was_tight) continue;
    for (const auto& [transfer, share] : link.transfers) Gather(transfer);
  }
  dirty_.clear();
  // Whoever meets one of them at a tight link.
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    for (const LinkUse& use : transfers_[changed_[i].first].uses) {
      State& link = links_[use.link];
      if (!link.tight || link.gathered) continue;
      link.gathered = true;
      tight_.push_back(use.link);
      for (const auto& [transfer, share] : link.transfers) Gather(transfer);
    }
  }
  std::sort(changed_.begin(), changed_.end());
  Fill();
  for (auto& [transfer, rate] : changed_) {
    rate = transfers_[transfer].rate;
    transfers_[transfer].gathered = false;
  }
  for (const std::int32_t id : tight_) links_[id].gathered = false;
  return changed_;
}

void FairLinks::Fill() {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::size_t left = changed_.size();
  for (const auto& [id, rate] : changed_) transfers_[id].frozen = false;
  const auto freeze = [&](Transfer& transfer, double rate) {
    transfer.frozen = true;
    transfer.rate = rate;
    --left;
  };
  std::vector<double> full_at(tight_.size());
  double level = 0;
  while (left > 0) {
    double next = kNever;
    for (std::size_t i = 0; i < tight_.size(); ++i) {
      double taken = 0, slope = 0;
      for (const auto& [id, share] : links_[tight_[i]].transfers) {
        const Transfer& transfer = transfers_[id];
        if (transfer.frozen) {
          taken += share * transfer.rate;
        } else {
          slope += share / transfer.full_rate;
        }
      }
      full_at[i] = slope > 0 ? (1 - taken) / slope : kNever;
      next = std::min(next, full_at[i]);
    }
    for (const auto& [id, rate] : changed_) {
      if (!transfers_[id].frozen) next = std::min(next, transfers_[id].full_rate);
    }
    // Rounding may say that a link was full a little before.
    level = std::max(level, next);
    for (const auto& [id, rate] : changed_) {
      Transfer& transfer = transfers_[id];
      if (!transfer.frozen && transfer.full_rate <= level) freeze(transfer, 1);
    }
    for (std::size_t i = 0; i < tight_.size(); ++i) {
      if (full_at[i] > level) continue;
      for (const auto& [id, share] : links_[tight_[i]].transfers) {
        Transfer& transfer = transfers_[id];
        if (!transfer.frozen) freeze(transfer, level / transfer.full_rate);
      }
    }
  }
}

}  // namespace weft::scheduler
