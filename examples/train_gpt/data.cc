#include "train_gpt/data.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

namespace train_gpt {

Corpus::Corpus(std::string_view text, int context) : context_(context) {
  characters_ = text;
  std::ranges::sort(characters_);
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  std::array<std::int32_t, 256> token_of = {};
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    token_of[static_cast<unsigned char>(characters_[i])] = static_cast<std::int32_t>(i);
  }
  tokens_.reserve(text.size());
  for (const char c : text) tokens_.push_back(token_of[static_cast<unsigned char>(c)]);

  // One character beyond the last window is its last target.
  const std::int64_t windows = (static_cast<std::int64_t>(tokens_.size()) - 1) / context_;
  held_out_windows_ = windows / 10;
  training_windows_ = windows - held_out_windows_;
  if (held_out_windows_ < 1) {
    error_ = "the text has " + std::to_string(tokens_.size()) + " characters; a context of " +
             std::to_string(context_) + " needs at least " + std::to_string(10 * context_ + 1);
  }
}

void Corpus::Append(std::int64_t window, Batch& batch) const {
  const auto begin = tokens_.begin() + window * context_;
  batch.tokens.insert(batch.tokens.end(), begin, begin + context_);
  batch.targets.insert(batch.targets.end(), begin + 1, begin + 1 + context_);
}

Batch Corpus::Training(std::uint64_t seed, std::int64_t step, const Share& share) const {
  // The shuffle is written out because the standard's leaves its draws to the library.
  std::vector<std::int64_t> order(training_windows_);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  for (std::int64_t i = training_windows_ - 1; i > 0; --i) {
    std::swap(order[i], order[random() % static_cast<std::uint64_t>(i + 1)]);
  }
  Batch batch;
  const std::int64_t first = (step * share.ranks + share.rank) * share.sequences;
  for (int i = 0; i < share.sequences; ++i) Append(order[(first + i) % training_windows_], batch);
  return batch;
}

Batch Corpus::HeldOut(const Share& share) const {
  Batch batch;
  const std::int64_t total = static_cast<std::int64_t>(share.ranks) * share.sequences;
  for (int i = 0; i < share.sequences; ++i) {
    const std::int64_t n = static_cast<std::int64_t>(share.rank) * share.sequences + i;
    Append(training_windows_ + n * held_out_windows_ / total, batch);
  }
  return batch;
}

}  // namespace train_gpt
