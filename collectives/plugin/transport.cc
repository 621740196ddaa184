#include "collectives/plugin/transport.h"

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/c_result.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/member.h"
#include "collectives/plugin/table.h"
#include "collectives/queued_communicator.h"

namespace weft::collectives::plugin {
namespace {

static_assert(static_cast<int>(OpKind::kAllReduce) == WEFT_PLUGIN_ALL_REDUCE);
static_assert(static_cast<int>(OpKind::kReduce) == WEFT_PLUGIN_REDUCE);
static_assert(static_cast<int>(OpKind::kBroadcast) == WEFT_PLUGIN_BROADCAST);
static_assert(static_cast<int>(OpKind::kAllGather) == WEFT_PLUGIN_ALL_GATHER);
static_assert(static_cast<int>(OpKind::kReduceScatter) == WEFT_PLUGIN_REDUCE_SCATTER);
static_assert(static_cast<int>(OpKind::kGather) == WEFT_PLUGIN_GATHER);
static_assert(static_cast<int>(OpKind::kScatter) == WEFT_PLUGIN_SCATTER);
static_assert(static_cast<int>(OpKind::kBarrier) == WEFT_PLUGIN_BARRIER);
static_assert(static_cast<int>(DType::kF16) == WEFT_F16);
static_assert(static_cast<int>(ReduceOp::kMax) == WEFT_PLUGIN_MAX);

// The plug-in's transport, which outlives its communicators.
class Handle {
 public:
  Handle(const weftTransportPlugin_v1_t& table, void* transport, PluginTransportOptions options)
      : table_(table), transport_(transport), options_(std::move(options)) {}
  ~Handle() { table_.destroy(transport_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const weftTransportPlugin_v1_t& table() const { return table_; }
  void* transport() const { return transport_; }
  const PluginTransportOptions& options() const { return options_; }

 private:
  const weftTransportPlugin_v1_t& table_;
  void* const transport_;
  const PluginTransportOptions options_;
};

class PluginMember final : public Member {
 public:
  PluginMember(Membership membership, std::shared_ptr<Handle> handle, void* comm)
      : Member(std::move(membership), Clock::Steady(), handle->options().deadline),
        handle_(std::move(handle)),
        comm_(comm) {}
  ~PluginMember() override { handle_->table().commDestroy(comm_); }

 protected:
  absl::Status Run(const Operation& op) override {
    std::vector<std::string> texts;
    std::vector<weftPluginOperation_t> operations;
    texts.reserve(PartsOf(op));  // the texts stay where they are
    for (std::size_t place = 0; place < PartsOf(op); ++place) {
      const Operation& part = PartOf(op, place);
      weftPluginOperation_t operation{};
      operation.size = sizeof(operation);
      operation.kind = static_cast<std::int32_t>(part.kind);
      operation.dtype = static_cast<std::int32_t>(part.dtype);
      operation.reduction = static_cast<std::int32_t>(part.reduce);
      operation.root = part.root;
      operation.send = part.send;
      operation.recv = part.recv;
      operation.counts = part.counts.data();
      operation.count_count = static_cast<std::int64_t>(part.counts.size());
      operation.description = texts.emplace_back(Describe(part)).c_str();
      operations.push_back(operation);
    }
    weftPluginError_t error = NoError();
    const weftResult_t result = handle_->table().run(
        comm_, operations.data(), static_cast<std::int32_t>(operations.size()), &error);
    if (result == weftSuccess) return absl::OkStatus();
    return Seen(FailureOf(result, error, membership().world_rank()));
  }

  void Fail(const Failure& failure) override {
    const absl::Status status = Seen(failure);
    Kill(status);
    handle_->table().commAbort(comm_, base::ResultOf(status), failure.what.c_str());
  }

 private:
  absl::Status Seen(const Failure& failure) const {
    return AsSeenBy(failure, membership().name, membership().world_rank());
  }

  const std::shared_ptr<Handle> handle_;
  void* const comm_;
};

class PluginTransport final : public Transport {
 public:
  explicit PluginTransport(std::shared_ptr<Handle> handle) : handle_(std::move(handle)) {}

  std::string_view kind() const override { return handle_->table().name; }
  int rank() const override { return handle_->options().rank; }
  int size() const override { return handle_->options().size; }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      std::string name, std::vector<int> world_ranks) override {
    WEFT_RETURN_IF_ERROR(CheckNewCommunicator(name, world_ranks, rank(), size()));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!names_.insert(name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank(), " already had a communicator named '", name, "'"));
      }
    }
    const std::vector<std::int32_t> ranks(world_ranks.begin(), world_ranks.end());
    weftPluginError_t error = NoError();
    void* comm = nullptr;
    const weftResult_t result =
        handle_->table().commCreate(handle_->transport(), name.c_str(), ranks.data(),
                                    static_cast<std::int32_t>(ranks.size()), &comm, &error);
    if (result != weftSuccess) return AsSeenBy(FailureOf(result, error, rank()), name, rank());
    Membership membership{std::move(name), 0, std::move(world_ranks)};
    while (membership.world_rank() != rank()) ++membership.rank;
    auto member = std::make_shared<PluginMember>(std::move(membership), handle_, comm);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::erase_if(members_, [](const auto& kept) { return kept.expired(); });
      members_.push_back(member);
    }
    return MakeCommunicator(std::move(member));
  }

  void Abort(const absl::Status& cause) override {
    WEFT_CHECK(!cause.ok()) << "an abort needs a cause";
    std::vector<std::shared_ptr<PluginMember>> members;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& weak : members_) {
        if (auto member = weak.lock()) members.push_back(std::move(member));
      }
    }
    const Failure failure = AbortedBy(rank(), cause);
    for (const auto& member : members) {
      member->Kill(AsSeenBy(failure, member->membership().name, rank()));
    }
    handle_->table().abort(handle_->transport(), base::ResultOf(cause), failure.what.c_str());
  }

  absl::Status failure() override {
    weftPluginError_t error = NoError();
    const weftResult_t result = handle_->table().getAsyncError(handle_->transport(), &error);
    if (result == weftSuccess) return absl::OkStatus();
    const Failure failure = FailureOf(result, error, rank());
    return absl::Status(failure.code, absl::StrCat("rank ", failure.rank, " ", failure.what));
  }

 private:
  const std::shared_ptr<Handle> handle_;
  std::mutex mutex_;
  std::set<std::string> names_;
  std::vector<std::weak_ptr<PluginMember>> members_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(const PluginTransportOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const weftTransportPlugin_v1_t* const table, FindTable());
  weftPluginTransportConfig_t config{};
  config.size = sizeof(config);
  config.rank = options.rank;
  config.world_size = options.size;
  config.store = options.store.c_str();
  config.deadline_seconds = absl::ToDoubleSeconds(options.deadline);
  weftPluginError_t error = NoError();
  void* transport = nullptr;
  const weftResult_t result = table->create(&config, &transport, &error);
  if (result != weftSuccess) {
    const Failure failure = FailureOf(result, error, options.rank);
    return absl::Status(failure.code, absl::StrCat("transport plug-in '", table->name, "' on rank ",
                                                   options.rank, ": ", failure.what));
  }
  return std::make_unique<PluginTransport>(std::make_shared<Handle>(*table, transport, options));
}

}  // namespace weft::collectives::plugin
