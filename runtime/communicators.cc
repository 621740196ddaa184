#include "runtime/communicators.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::runtime {

absl::StatusOr<std::unique_ptr<Communicators>> Communicators::Create(const std::string& prefix,
                                                                     Device& device,
                                                                     Transport& transport) {
  std::unique_ptr<Communicators> result(new Communicators(prefix, transport));
  result->stream_ = device.CreateStream(prefix + " control");
  if (transport.size() > 1) {
    std::vector<int> ranks(transport.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    WEFT_ASSIGN_OR_RETURN(result->world_,
                          transport.CreateCommunicator(absl::StrCat(prefix, " world"), ranks));
  }
  return result;
}

absl::Status Communicators::CreateFor(const Plan& plan) {
  std::vector<bool> carries(plan.groups.size(), false);
  for (const Op& op : plan.ops) {
    if (IsCollective(op.kind)) carries[op.group] = true;
  }
  by_group_.assign(plan.groups.size(), nullptr);
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    const Group& group = plan.groups[i];
    const int part = carries[i] ? group.PartOf(transport_.rank()) : -1;
    if (part < 0 || group.parts[part].size() < 2) continue;
    const std::vector<int>& ranks = group.parts[part];
    if (static_cast<int>(ranks.size()) == transport_.size()) {
      by_group_[i] = world_.get();
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(
        auto communicator,
        transport_.CreateCommunicator(absl::StrCat(prefix_, " ", group.PartName(part)), ranks));
    by_group_[i] = communicator.get();
    owned_.push_back(std::move(communicator));
    WEFT_RETURN_IF_ERROR(by_group_[i]->Barrier(*stream_, {"", "warm-up"}));
    WEFT_RETURN_IF_ERROR(Finish());
  }
  return absl::OkStatus();
}

absl::Status Communicators::Finish() {
  absl::Status status = stream_->Synchronize(absl::InfiniteDuration());
  if (status.ok()) return status;
  const absl::Status root = transport_.failure();
  return root.ok() ? status : root;
}

absl::StatusOr<std::vector<std::int64_t>> Communicators::ExchangeNumbers(
    const std::vector<std::int64_t>& numbers, std::string_view stage) {
  if (world_ == nullptr) return numbers;
  const int size = world_->size();
  const std::vector<std::int64_t> bytes(size, numbers.size() * sizeof(std::int64_t));
  std::vector<std::int64_t> all(size * numbers.size());
  WEFT_RETURN_IF_ERROR(
      world_->AllGatherV(*stream_, numbers.data(), all.data(), bytes, {"", stage}));
  WEFT_RETURN_IF_ERROR(Finish());
  return all;
}

namespace {

std::vector<std::string> Split(const std::string& all, const std::vector<std::int64_t>& bytes) {
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t length : bytes) {
    texts.push_back(all.substr(begin, length));
    begin += length;
  }
  return texts;
}

std::string Room(const std::vector<std::int64_t>& bytes) {
  return std::string(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), '\0');
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Communicators::ExchangeText(const std::string& text,
                                                                     std::string_view stage) {
  if (world_ == nullptr) return std::vector<std::string>{text};
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> bytes,
                        ExchangeNumbers({static_cast<std::int64_t>(text.size())}, stage));
  std::string all = Room(bytes);
  WEFT_RETURN_IF_ERROR(world_->AllGatherV(*stream_, text.data(), all.data(), bytes, {"", stage}));
  WEFT_RETURN_IF_ERROR(Finish());
  return Split(all, bytes);
}

absl::StatusOr<std::vector<std::string>> Communicators::GatherText(const std::string& text,
                                                                   std::string_view stage) {
  if (world_ == nullptr) return std::vector<std::string>{text};
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> bytes,
                        ExchangeNumbers({static_cast<std::int64_t>(text.size())}, stage));
  const bool root = world_->rank() == 0;
  std::string all = root ? Room(bytes) : "";
  WEFT_RETURN_IF_ERROR(world_->GatherV(*stream_, text.data(), all.data(), bytes, 0, {"", stage}));
  WEFT_RETURN_IF_ERROR(Finish());
  return root ? Split(all, bytes) : std::vector<std::string>{};
}

absl::Status Communicators::Barrier(std::string_view stage) {
  if (world_ == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(world_->Barrier(*stream_, {"", stage}));
  return Finish();
}

absl::Status Communicators::Agree(const absl::Status& own, std::string_view stage) {
  if (world_ == nullptr) return own;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> codes,
                        ExchangeNumbers({static_cast<std::int64_t>(own.code())}, stage));
  const auto failed =
      std::find_if(codes.begin(), codes.end(), [](std::int64_t code) { return code != 0; });
  if (failed == codes.end()) return absl::OkStatus();
  const auto rank = failed - codes.begin();
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                        ExchangeText(std::string(own.message()), stage));
  return absl::Status(static_cast<absl::StatusCode>(*failed),
                      absl::StrCat("rank ", rank, ": ", texts[rank]));
}

}  // namespace weft::runtime
