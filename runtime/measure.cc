#include "weft/measure.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utc.h"
#include "runtime/communicators.h"
#include "runtime/timing.h"
#include "update/newton_schulz.h"
#include "weft/version.h"
#include "weft/work.h"

namespace weft {
namespace {

using base::View;
using runtime::Communicators;
using runtime::Timer;
using runtime::Timing;

constexpr std::array kKinds = {OpKind::kAllReduce, OpKind::kReduce,        OpKind::kBroadcast,
                               OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kGather,
                               OpKind::kScatter};
constexpr std::int64_t kElementBytes = 4;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

// Each once, the short side first, ascending.
std::set<std::pair<std::int64_t, std::int64_t>> Shapes(const MeasureOptions& options) {
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const MatrixShape& shape : options.shapes) {
    shapes.insert(std::minmax(shape.rows, shape.cols));
  }
  return shapes;
}

// The memory of one measurement of compute.
class Operands {
 public:
  // Fills `batch` inputs with seeded values of mean square 1/3.
  absl::Status Prepare(Device& device, std::int64_t elements, int batch, std::size_t workspace) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * batch * sizeof(float);
    WEFT_ASSIGN_OR_RETURN(input_, device.Allocate(bytes));
    WEFT_ASSIGN_OR_RETURN(output_, device.Allocate(bytes));
    WEFT_ASSIGN_OR_RETURN(workspace_, device.Allocate(workspace));
    std::vector<float> values(static_cast<std::size_t>(elements));
    std::uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator
      value = static_cast<float>(state >> 8) * 0x1p-23f - 1;
    }
    for (int i = 0; i < batch; ++i) {
      WEFT_RETURN_IF_ERROR(device.CopyNow(input_->as<float>() + i * elements, values.data(),
                                          values.size() * sizeof(float)));
    }
    return absl::OkStatus();
  }
  float* input() const { return input_->as<float>(); }
  float* output() const { return output_->as<float>(); }
  void* workspace() const { return workspace_->data(); }

 private:
  std::unique_ptr<Buffer> input_, output_, workspace_;
};

// Measures into a profile.
class Measurer {
 public:
  Measurer(Device& device, Transport& transport, Communicators& ranks,
           const MeasureOptions& options, CostProfile& profile)
      : device_(device),
        transport_(transport),
        ranks_(ranks),
        options_(options),
        timer_(device, transport, ranks, options),
        profile_(profile) {}

  // All batches of one shape.
  absl::Status Compute(ComputeKind kind, std::int64_t rows, std::int64_t cols);
  absl::Status Collectives(GroupClass group, const std::vector<int>& members);

 private:
  absl::Status AllocatePayload();
  absl::Status Collective(OpKind kind, GroupClass group, int ranks, Communicator* communicator);
  absl::Status Enqueue(OpKind kind, std::int64_t bytes, Communicator& communicator,
                       Stream& stream) const;

  Device& device_;
  Transport& transport_;
  Communicators& ranks_;
  const MeasureOptions& options_;
  Timer timer_;
  CostProfile& profile_;
  std::unique_ptr<Buffer> send_, receive_;  // of the largest payload
};

absl::Status Measurer::Compute(ComputeKind kind, std::int64_t rows, std::int64_t cols) {
  ComputeWork work = RowNormWork(rows, cols);
  if (kind == ComputeKind::kNewtonSchulz) {
    WEFT_ASSIGN_OR_RETURN(work, NewtonSchulzWork(options_.newton_schulz, rows, cols));
  }
  const std::set<int> batches(options_.batches.begin(), options_.batches.end());
  for (const int batch : batches) {
    const std::string what =
        absl::StrCat(View(Name(kind)), " of ", batch, " x ", rows, " x ", cols);
    std::unique_ptr<update::NewtonSchulz> run;
    std::size_t workspace = 0;
    if (kind == ComputeKind::kNewtonSchulz) {
      auto made = update::NewtonSchulz::Create(device_, options_.newton_schulz, rows, cols, batch);
      WEFT_RETURN_IF_ERROR(ranks_.Agree(made.status(), what));
      run = *std::move(made);
      workspace = run->workspace_bytes();
    }
    const double bytes = 2.0 * sizeof(float) * static_cast<double>(rows * cols) * batch +
                         static_cast<double>(workspace);
    if (batch != *batches.begin() && bytes > static_cast<double>(options_.memory_bytes)) break;
    Operands operands;
    const absl::Status prepared = operands.Prepare(device_, rows * cols, batch, workspace);
    const auto enqueue = [&](Stream& stream) {
      if (run != nullptr) {
        return run->Enqueue(stream, operands.input(), operands.output(), operands.workspace());
      }
      const Matrix x = Matrix::Dense(operands.input(), DType::kF32, rows, cols, batch);
      const Matrix y = Matrix::Dense(operands.output(), DType::kF32, rows, cols, batch);
      return device_.math().RowNorm(stream, x, /*columns=*/false, 1e-8f, 0.15f, y);
    };
    WEFT_ASSIGN_OR_RETURN(const Timing timing, timer_.Measure(what, prepared, {}, enqueue));
    profile_.compute.push_back({work.shape, batch, work.flops, timing.seconds, timing.spread});
    if (timing.seconds > absl::ToDoubleSeconds(options_.longest)) break;
  }
  return absl::OkStatus();
}

absl::Status Measurer::Enqueue(OpKind kind, std::int64_t bytes, Communicator& communicator,
                               Stream& stream) const {
  const std::int64_t count = bytes / kElementBytes;
  const int ranks = communicator.size();
  // As even as whole elements allow.
  std::vector<std::int64_t> counts(ranks, count / ranks), parts;
  for (std::int64_t i = 0; i < count % ranks; ++i) ++counts[i];
  for (const std::int64_t part : counts) parts.push_back(part * kElementBytes);
  const OpTag tag = {"", "profile"};
  void* const send = send_->data();
  void* const receive = receive_->data();
  switch (kind) {
    case OpKind::kAllReduce:
      return communicator.AllReduce(stream, send, receive, count, DType::kF32, ReduceOp::kSum, tag);
    case OpKind::kReduce:
      return communicator.Reduce(stream, send, receive, count, DType::kF32, ReduceOp::kSum, 0, tag);
    case OpKind::kBroadcast:
      return communicator.Broadcast(stream, send, bytes, 0, tag);
    case OpKind::kAllGather:
      return communicator.AllGatherV(stream, send, receive, parts, tag);
    case OpKind::kReduceScatter:
      return communicator.ReduceScatterV(stream, send, receive, counts, DType::kF32, ReduceOp::kSum,
                                         tag);
    case OpKind::kGather:
      return communicator.GatherV(stream, send, receive, parts, 0, tag);
    case OpKind::kScatter:
      return communicator.ScatterV(stream, send, receive, parts, 0, tag);
    default:
      return absl::InternalError("not a collective that is measured");
  }
}

absl::Status Measurer::Collective(OpKind kind, GroupClass group, int ranks,
                                  Communicator* communicator) {
  CollectiveCost cost;
  cost.kind = kind;
  cost.group = group;
  cost.ranks = ranks;
  for (const std::int64_t bytes : std::set(options_.sizes.begin(), options_.sizes.end())) {
    const std::string what =
        absl::StrCat(View(Name(kind)), " of ", bytes, " bytes, ", View(Name(group)), " of ", ranks);
    Timer::Enqueue align, work;
    if (communicator != nullptr) {
      align = [&](Stream& stream) { return communicator->Barrier(stream, {"", "profile"}); };
      work = [&](Stream& stream) { return Enqueue(kind, bytes, *communicator, stream); };
    }
    WEFT_ASSIGN_OR_RETURN(const Timing timing, timer_.Measure(what, absl::OkStatus(), align, work));
    cost.samples.push_back({bytes, timing.seconds, timing.spread});
  }
  WEFT_ASSIGN_OR_RETURN(cost.fit, FitLink(cost.samples));
  profile_.collectives.push_back(std::move(cost));
  return absl::OkStatus();
}

absl::Status Measurer::AllocatePayload() {
  const auto bytes =
      static_cast<std::size_t>(*std::max_element(options_.sizes.begin(), options_.sizes.end()));
  // Numbers that take no longer than others to add.
  const std::vector<float> zeros(bytes / sizeof(float), 0.0f);
  for (std::unique_ptr<Buffer>* buffer : {&send_, &receive_}) {
    WEFT_ASSIGN_OR_RETURN(*buffer, device_.Allocate(bytes));
    WEFT_RETURN_IF_ERROR(device_.CopyNow((*buffer)->data(), zeros.data(), bytes));
  }
  return absl::OkStatus();
}

absl::Status Measurer::Collectives(GroupClass group, const std::vector<int>& members) {
  if (send_ == nullptr) WEFT_RETURN_IF_ERROR(ranks_.Agree(AllocatePayload(), "profile"));
  std::unique_ptr<Communicator> communicator;
  if (std::binary_search(members.begin(), members.end(), transport_.rank())) {
    WEFT_ASSIGN_OR_RETURN(communicator, transport_.CreateCommunicator(
                                            absl::StrCat(options_.name, " ", View(Name(group)),
                                                         " from ", members.front()),
                                            members));
  }
  for (const OpKind kind : kKinds) {
    WEFT_RETURN_IF_ERROR(
        Collective(kind, group, static_cast<int>(members.size()), communicator.get()));
  }
  return absl::OkStatus();
}

// When and on what, as rank 0 has it; an error on all ranks where another has another device.
absl::Status Identify(Device& device, Transport& transport, Communicators& ranks,
                      const MeasureOptions& options, CostProfile& profile) {
  profile.fingerprint = FingerprintOf(device, transport.kind(), options.topology);
  const ProfileFingerprint& own = profile.fingerprint;
  const std::string here = absl::StrCat(own.device_kind, " (", own.device, ", ", own.math_library,
                                        ", threads ", own.threads, ")");
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        ranks.ExchangeText(absl::StrCat(base::UtcNow(), "\n", here), "profile"));
  std::string first;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::pair<std::string, std::string> said =
        absl::StrSplit(all[rank], absl::MaxSplits('\n', 1));
    if (rank == 0) {
      profile.measured_at = said.first;
      first = said.second;
    } else if (said.second != first) {
      return absl::FailedPreconditionError(
          absl::StrCat("one profile is of one kind of rank, but rank 0 is ", first, " and rank ",
                       rank, " is ", said.second));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const MeasureOptions& options) {
  constexpr std::int64_t kMostExtent = std::int64_t{1} << 20;
  WEFT_RETURN_IF_ERROR(Validate(options.topology));
  WEFT_RETURN_IF_ERROR(Validate(options.newton_schulz));
  for (const MatrixShape& shape : options.shapes) {
    if (shape.rows < 1 || shape.cols < 1 || shape.rows > kMostExtent || shape.cols > kMostExtent) {
      return Bad(absl::StrCat("the shape ", shape.rows, " x ", shape.cols,
                              " cannot be measured; sides lie in 1 to ", kMostExtent));
    }
  }
  if (options.batches.empty()) return Bad("there is no batch to measure");
  for (const int batch : options.batches) {
    if (batch < 1 || batch > 1024) {
      return Bad(absl::StrCat("a batch of ", batch, " cannot be measured; it lies in 1 to 1024"));
    }
  }
  for (const std::int64_t size : options.sizes) {
    if (size < kElementBytes || size % kElementBytes != 0 || size > std::int64_t{1} << 40) {
      return Bad(absl::StrCat("a payload of ", size,
                              " bytes cannot be measured; it is a multiple of 4 up to 2^40"));
    }
  }
  if (options.topology.grid.size() > 1 &&
      std::set(options.sizes.begin(), options.sizes.end()).size() < 2) {
    return Bad("collectives are measured at two different sizes at least");
  }
  if (options.repetitions < 1 || options.repetitions > 1'000'000) {
    return Bad(absl::StrCat(options.repetitions, " repetitions; 1 to 1000000 are possible"));
  }
  if (options.longest <= absl::ZeroDuration()) return Bad("longest must be positive");
  return absl::OkStatus();
}

std::int64_t MostMeasurements(const MeasureOptions& options) {
  const ProcessGrid& grid = options.topology.grid;
  const std::size_t groups = grid.size() == 1                            ? 0
                             : grid.nodes > 1 && grid.ranks_per_node > 1 ? 3
                                                                         : 1;
  return static_cast<std::int64_t>(
      2 * Shapes(options).size() * std::set(options.batches.begin(), options.batches.end()).size() +
      groups * kKinds.size() * std::set(options.sizes.begin(), options.sizes.end()).size());
}

ProfileFingerprint FingerprintOf(const Device& device, std::string_view transport,
                                 const Topology& topology) {
  const DeviceIdentity identity = device.identity();
  return {std::string(Version()),
          identity.math_library,
          std::string(device.kind()),
          identity.name,
          identity.threads,
          std::string(transport),
          topology};
}

absl::StatusOr<CostProfile> MeasureCosts(Device& device, Transport& transport,
                                         const MeasureOptions& options) {
  WEFT_RETURN_IF_ERROR(Validate(options));
  const ProcessGrid& grid = options.topology.grid;
  if (grid.size() != transport.size()) {
    return Bad(absl::StrCat("a grid of ", grid.nodes, " nodes of ", grid.ranks_per_node,
                            " ranks against a transport of ", transport.size()));
  }
  WEFT_ASSIGN_OR_RETURN(const auto ranks, Communicators::Create(options.name, device, transport));
  CostProfile profile;
  WEFT_RETURN_IF_ERROR(Identify(device, transport, *ranks, options, profile));
  Measurer measurer(device, transport, *ranks, options, profile);
  const auto shapes = Shapes(options);
  for (const ComputeKind kind : {ComputeKind::kNewtonSchulz, ComputeKind::kRowNorm}) {
    for (const auto& [rows, cols] : shapes) {
      WEFT_RETURN_IF_ERROR(measurer.Compute(kind, rows, cols));
    }
  }
  if (grid.size() > 1) {
    WEFT_RETURN_IF_ERROR(measurer.Collectives(GroupClass::kWorld, grid.World()));
  }
  if (grid.nodes > 1 && grid.ranks_per_node > 1) {
    const int node = grid.node_of(transport.rank());
    WEFT_RETURN_IF_ERROR(measurer.Collectives(GroupClass::kIntra, grid.Intra(node)));
    WEFT_RETURN_IF_ERROR(measurer.Collectives(GroupClass::kInter, grid.Inter(0)));
  }
  // Nobody leaves while another still needs it.
  WEFT_RETURN_IF_ERROR(ranks->Barrier("profile"));
  return profile;
}

}  // namespace weft
