// The communicators of a plan's groups, and the exchanges that Commit() and reports need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/plan.h"

namespace weft::runtime {

class Communicators {
 public:
  // Creates the communicator of the world (none for a world of one).
  static absl::StatusOr<std::unique_ptr<Communicators>> Create(const std::string& prefix,
                                                               Device& device,
                                                               Transport& transport);

  // Creates, one after another and in the plan's order, those of the parts of the plan's other
  // groups that this rank is in and that carry a collective; runs a barrier on each.
  absl::Status CreateFor(const Plan& plan);

  // Of the part that this rank is in; null for groups without one.
  Communicator* of(std::int32_t group) const { return by_group_[group]; }

  // Collective, blocking: every rank's text, in rank order, on every rank.
  absl::StatusOr<std::vector<std::string>> ExchangeText(const std::string& text,
                                                        std::string_view stage);
  // The same on rank 0; empty elsewhere.
  absl::StatusOr<std::vector<std::string>> GatherText(const std::string& text,
                                                      std::string_view stage);
  // Collective, blocking: OK where all ranks pass OK, otherwise the error of the lowest rank that
  // has one, naming it, on every rank.
  absl::Status Agree(const absl::Status& own, std::string_view stage);
  absl::Status Barrier(std::string_view stage);
  // Collective, blocking: every rank's `count` numbers, in rank order.
  absl::StatusOr<std::vector<std::int64_t>> ExchangeNumbers(
      const std::vector<std::int64_t>& numbers, std::string_view stage);

 private:
  Communicators(std::string prefix, Device& device, Transport& transport)
      : prefix_(std::move(prefix)), device_(device), transport_(transport) {}

  absl::Status Finish();
  // Every rank's bytes in rank order; empty where this rank is not `root`, unless that is negative.
  absl::StatusOr<std::vector<std::byte>> Exchange(absl::Span<const std::byte> own,
                                                  const std::vector<std::int64_t>& bytes, int root,
                                                  std::string_view stage);
  absl::StatusOr<std::vector<std::string>> CollectText(const std::string& text, int root,
                                                       std::string_view stage);

  const std::string prefix_;
  Device& device_;
  Transport& transport_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Stream> stream_;
  // Page-locked, so that a rank without device memory can still say so; kept, since page-locking
  // waits for the device.
  std::unique_ptr<Buffer> room_;
  std::vector<std::unique_ptr<Communicator>> owned_;
  std::vector<Communicator*> by_group_;
};

}  // namespace weft::runtime
