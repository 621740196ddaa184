#include "runtime/communicators.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "runtime/messages.h"

namespace weft::runtime {
namespace {

constexpr int kAllRanks = -1;
// Enough for what ranks tell each other where nothing is wrong.
constexpr std::size_t kRoom = std::size_t{1} << 16;

}  // namespace

absl::StatusOr<std::unique_ptr<Communicators>> Communicators::Create(const std::string& prefix,
                                                                     Device& device,
                                                                     Transport& transport) {
  std::unique_ptr<Communicators> result(new Communicators(prefix, device, transport));
  result->stream_ = device.CreateStream(prefix + " control");
  if (transport.size() > 1) {
    std::vector<int> ranks(transport.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::string name = absl::StrCat(prefix, " world");
    const base::Range range(base::Category::kPlan, base::Register(name), transport.size());
    WEFT_ASSIGN_OR_RETURN(result->world_, transport.CreateCommunicator(name, ranks));
  }
  return result;
}

absl::Status Communicators::CreateFor(const Plan& plan) {
  const base::Range range(kConnect, transport_.size());
  std::vector<bool> carries(plan.groups.size(), false);
  for (const Op& op : plan.ops) {
    if (IsCollective(op.kind)) carries[op.group] = true;
  }
  by_group_.assign(plan.groups.size(), nullptr);
  std::map<std::vector<int>, Communicator*> by_ranks;
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    const Group& group = plan.groups[i];
    const int part = carries[i] ? group.PartOf(transport_.rank()) : -1;
    if (part < 0 || group.parts[part].size() < 2) continue;
    const std::vector<int>& ranks = group.parts[part];
    if (static_cast<int>(ranks.size()) == transport_.size()) {
      by_group_[i] = world_.get();
      continue;
    }
    // Its collectives are on the lane of any other group with the same ranks, in one order.
    Communicator*& shared = by_ranks[ranks];
    if (shared != nullptr) {
      by_group_[i] = shared;
      continue;
    }
    const std::string name = absl::StrCat(prefix_, " ", group.PartName(part));
    const base::Range created(base::Category::kPlan, base::Register(name),
                              static_cast<std::int64_t>(ranks.size()));
    WEFT_ASSIGN_OR_RETURN(auto communicator, transport_.CreateCommunicator(name, ranks));
    by_group_[i] = shared = communicator.get();
    owned_.push_back(std::move(communicator));
    WEFT_RETURN_IF_ERROR(by_group_[i]->Barrier(*stream_, {"", "warm-up"}));
    WEFT_RETURN_IF_ERROR(Finish());
  }
  return absl::OkStatus();
}

absl::Status Communicators::Finish() {
  absl::Status status = stream_->Synchronize(absl::InfiniteDuration());
  if (status.ok() && !transport_.ended()) return status;
  const absl::Status root = transport_.failure();
  return root.ok() ? status : root;
}

absl::StatusOr<std::vector<std::byte>> Communicators::Exchange(
    absl::Span<const std::byte> own, const std::vector<std::int64_t>& bytes, int root,
    std::string_view stage) {
  const std::size_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  const std::size_t received = root < 0 || root == world_->rank() ? total : 0;
  if (room_ == nullptr || room_->bytes() < own.size() + received) {
    WEFT_ASSIGN_OR_RETURN(room_, device_.AllocateHost(std::max(kRoom, own.size() + received)));
  }
  auto* const recv = room_->as<std::byte>();
  std::byte* const send = recv + received;
  std::copy(own.begin(), own.end(), send);
  const OpTag tag{"", stage};
  WEFT_RETURN_IF_ERROR(root < 0 ? world_->AllGatherV(*stream_, send, recv, bytes, tag)
                                : world_->GatherV(*stream_, send, recv, bytes, root, tag));
  WEFT_RETURN_IF_ERROR(Finish());
  return std::vector<std::byte>(recv, recv + received);
}

absl::StatusOr<std::vector<std::int64_t>> Communicators::ExchangeNumbers(
    const std::vector<std::int64_t>& numbers, std::string_view stage) {
  if (world_ == nullptr) return numbers;
  const auto own = std::as_bytes(std::span(numbers));
  const std::vector<std::int64_t> bytes(world_->size(), static_cast<std::int64_t>(own.size()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::byte> all,
                        Exchange({own.data(), own.size()}, bytes, kAllRanks, stage));
  std::vector<std::int64_t> result(all.size() / sizeof(std::int64_t));
  if (!all.empty()) std::memcpy(result.data(), all.data(), all.size());
  return result;
}

absl::StatusOr<std::vector<std::string>> Communicators::CollectText(const std::string& text,
                                                                    int root,
                                                                    std::string_view stage) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> bytes,
                        ExchangeNumbers({static_cast<std::int64_t>(text.size())}, stage));
  const auto own = std::as_bytes(std::span(text));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::byte> all,
                        Exchange({own.data(), own.size()}, bytes, root, stage));
  std::vector<std::string> texts;
  const auto* next = reinterpret_cast<const char*>(all.data());
  for (std::size_t rank = 0; !all.empty() && rank < bytes.size(); ++rank) {
    texts.emplace_back(next, bytes[rank]);
    next += bytes[rank];
  }
  if (texts.empty() && root < 0) texts.resize(bytes.size());
  return texts;
}

absl::StatusOr<std::vector<std::string>> Communicators::ExchangeText(const std::string& text,
                                                                     std::string_view stage) {
  if (world_ == nullptr) return std::vector<std::string>{text};
  return CollectText(text, kAllRanks, stage);
}

absl::StatusOr<std::vector<std::string>> Communicators::GatherText(const std::string& text,
                                                                   std::string_view stage) {
  if (world_ == nullptr) return std::vector<std::string>{text};
  return CollectText(text, /*root=*/0, stage);
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
