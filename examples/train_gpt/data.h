// A text as a source of training batches, character by character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace train_gpt {

struct Batch {
  std::vector<std::int32_t> tokens;   // sequences x context
  std::vector<std::int32_t> targets;  // the character after each token
};

// Which part of a step's batch a rank trains on.
struct Share {
  int rank = 0;
  int ranks = 1;
  int sequences = 1;  // per rank
};

// Immutable, so that the ranks of one process can share it. The last tenth of the text is held out.
class Corpus {
 public:
  // Empty text, or one shorter than `context` needs, gives a corpus that says so in error().
  Corpus(std::string_view text, int context);

  // Empty, or one sentence on why there is nothing to train on.
  const std::string& error() const { return error_; }
  // Distinct characters.
  int vocabulary() const { return static_cast<int>(characters_.size()); }
  int context() const { return context_; }
  // Windows of `context` characters that do not overlap, before and after the split.
  std::int64_t training_windows() const { return training_windows_; }
  std::int64_t held_out_windows() const { return held_out_windows_; }

  // The training windows in an order drawn from `seed`, dealt out step by step and, within a step,
  // rank by rank: ranks of one step never share a window, and one rank with R times the sequences
  // gets what R ranks get together. The order repeats when all windows have been used.
  Batch Training(std::uint64_t seed, std::int64_t step, const Share& share) const;

  // The same held-out windows at every call, spread evenly over the held-out text.
  Batch HeldOut(const Share& share) const;

 private:
  void Append(std::int64_t window, Batch& batch) const;

  int context_;
  std::string error_;
  std::string characters_;
  std::vector<std::int32_t> tokens_;
  std::int64_t training_windows_ = 0;
  std::int64_t held_out_windows_ = 0;
};

}  // namespace train_gpt
