#include "tools/weft/rank_run.h"

#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/weft/commands.h"
#include "tools/weft/file_values.h"
#include "tools/weft/numbers.h"
#include "tools/weft/seeded.h"
#include "tools/weft/status_macros.h"
#include "weft/device.h"
#include "weft/runtime.h"

namespace weft::tool {
namespace {

constexpr double kSeededDeviation = 0.02;

// FNV-1a over 8-byte words; equal bits on equal ranks are all that is asked of it.
std::uint64_t Checksum(std::uint64_t state, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    std::uint64_t word = bytes;
    const std::size_t part = std::min<std::size_t>(bytes, sizeof(word));
    std::memcpy(&word, from, part);
    state = (state ^ word) * 0x100000001b3u;
    from += part;
    bytes -= part;
  }
  return state;
}

// The state of one rank between the parts of its run.
class RankRunner {
 public:
  RankRunner(const Session& session, Transport& transport)
      : session_(session), transport_(transport), rank_(transport.rank()) {}

  absl::Status Prepare();
  absl::Status Step(std::int64_t step, RunReport& report);
  absl::Status Finish(RunReport& report);

 private:
  absl::Status CollectWeights(RunReport& report);
  absl::Status CountNotFiniteWeights(RunReport& report);
  absl::Status CompareReplicas(RunReport& report);
  // This rank's rows of a matrix, and the bytes that `rank` holds of it.
  std::int64_t FirstRow(std::size_t matrix) const;
  std::int64_t HeldBytes(std::size_t matrix, int rank) const;

  const Session& session_;
  Transport& transport_;
  const int rank_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Buffer>> weights_;
  std::unique_ptr<Buffer> gradient_;  // large enough for any
  std::unique_ptr<Runtime> runtime_;
  std::uint64_t checksum_ = 0xcbf29ce484222325u;
  std::vector<std::uint64_t> checksums_;         // by rank
  std::vector<std::int64_t> not_finite_;         // by matrix, of what this rank holds
  std::vector<std::int64_t> not_finite_of_all_;  // the same of every rank, in rank order
  // Declared after what its operations touch; the tool's own group of all ranks, null for one rank.
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Stream> stream_;
};

// What the first ranks hold is all of it, where nodes have copies.
bool IsCopy(const PlanMatrix& planned, int rank) {
  return static_cast<std::size_t>(rank) >= planned.shard_rows.size();
}

std::int64_t RankRunner::FirstRow(std::size_t matrix) const {
  const PlanMatrix& planned = session_.plan.matrices[matrix];
  if (planned.layout == Layout::kReplicated) return 0;
  const auto shard = static_cast<std::ptrdiff_t>(rank_ % planned.shard_rows.size());
  return std::accumulate(planned.shard_rows.begin(), planned.shard_rows.begin() + shard,
                         std::int64_t{0});
}

std::int64_t RankRunner::HeldBytes(std::size_t matrix, int rank) const {
  const PlanMatrix& planned = session_.plan.matrices[matrix];
  const std::int64_t rows =
      planned.layout == Layout::kReplicated ? planned.rows : ShardRows(planned, rank);
  return rows * planned.cols * static_cast<std::int64_t>(SizeOf(planned.dtype));
}

absl::Status RankRunner::Prepare() {
  HostDeviceOptions device;
  device.threads = session_.options.threads;
  WEFT_ASSIGN_OR_RETURN(device_, CreateHostDevice(device));
  WEFT_ASSIGN_OR_RETURN(runtime_, Runtime::Create(session_.settings.runtime, *device_, transport_));
  std::size_t largest = 0;
  for (std::size_t i = 0; i < session_.specs.size(); ++i) {
    const RoutedMatrix& matrix = session_.routing.matrices[i];
    const auto bytes = static_cast<std::size_t>(HeldBytes(i, rank_));
    WEFT_ASSIGN_OR_RETURN(auto weight, device_->Allocate(bytes));
    WEFT_RETURN_IF_ERROR(InitialWeights(session_, matrix, FirstRow(i) * matrix.cols,
                                        static_cast<std::int64_t>(bytes / SizeOf(matrix.dtype)),
                                        weight->data()));
    MatrixSpec spec = session_.specs[i];
    spec.weight = weight->data();
    weights_.push_back(std::move(weight));
    WEFT_RETURN_IF_ERROR(runtime_->AddMatrix(std::move(spec)).status());
    largest = std::max(largest,
                       static_cast<std::size_t>(matrix.rows * matrix.cols) * SizeOf(matrix.dtype));
  }
  WEFT_ASSIGN_OR_RETURN(gradient_, device_->Allocate(largest));
  WEFT_RETURN_IF_ERROR(runtime_->Commit());
  stream_ = device_->CreateStream("weft run");
  if (transport_.size() > 1) {
    std::vector<int> everyone(transport_.size());
    std::iota(everyone.begin(), everyone.end(), 0);
    WEFT_ASSIGN_OR_RETURN(world_, transport_.CreateCommunicator("weft run", everyone));
  }
  return absl::OkStatus();
}

absl::Status RankRunner::Step(std::int64_t step, RunReport& report) {
  Clock& clock = Clock::Steady();
  Nanos spent = 0;
  // Backward passes hand over the last layers first.
  for (std::size_t left = session_.routing.matrices.size(); left > 0; --left) {
    const std::size_t i = left - 1;
    const RoutedMatrix& matrix = session_.routing.matrices[i];
    WEFT_RETURN_IF_ERROR(session_.gradients.Fill(session_.model.tensors[matrix.tensor],
                                                 matrix.tensor, step, rank_, gradient_->data()));
    MatrixJob job;
    job.matrix = static_cast<MatrixId>(i);
    job.gradient = gradient_->data();
    const Nanos begin = clock.Now();
    WEFT_RETURN_IF_ERROR(runtime_->Submit(job).status());
    spent += clock.Now() - begin;
  }
  const Nanos begin = clock.Now();
  WEFT_RETURN_IF_ERROR(runtime_->Step());
  WEFT_RETURN_IF_ERROR(runtime_->WaitForStep());
  spent += clock.Now() - begin;
  WEFT_ASSIGN_OR_RETURN(auto metrics, runtime_->MetricsOfAllRanks());
  if (rank_ == 0) {
    report.metrics.push_back(std::move(metrics));
    report.step_seconds.push_back(static_cast<double>(spent) * 1e-9);
  }
  return absl::OkStatus();
}

absl::Status RankRunner::CompareReplicas(RunReport& report) {
  bool any = false;
  // Who has the same rows: everybody, or the ranks with one local rank. A run has one layout.
  std::size_t apart = 1;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const PlanMatrix& planned = session_.plan.matrices[i];
    if (planned.layout == Layout::kNodeSharded) {
      apart = planned.shard_rows.size();
    } else if (planned.layout != Layout::kReplicated) {
      continue;
    }
    any = true;
    checksum_ = Checksum(checksum_, weights_[i]->data(), weights_[i]->bytes());
  }
  checksums_.resize(transport_.size());
  const std::vector<std::int64_t> bytes(transport_.size(), sizeof(checksum_));
  WEFT_RETURN_IF_ERROR(
      world_->AllGatherV(*stream_, &checksum_, checksums_.data(), bytes, {"", "checksum"}));
  WEFT_RETURN_IF_ERROR(stream_->Synchronize(session_.settings.runtime.deadline));
  for (std::size_t rank = 1; rank < checksums_.size(); ++rank) {
    if (checksums_[rank] != checksums_[rank % apart]) {
      return absl::InternalError(
          absl::StrCat("rank ", rank, " ended with other weights than rank ", rank % apart));
    }
  }
  if (any) report.equal_replicas = transport_.size();
  return absl::OkStatus();
}

absl::Status RankRunner::CollectWeights(RunReport& report) {
  if (rank_ == 0) report.weights.resize(weights_.size());
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const PlanMatrix& planned = session_.plan.matrices[i];
    if (planned.layout == Layout::kReplicated || world_ == nullptr) {
      if (rank_ != 0) continue;
      const auto* from = weights_[i]->as<std::byte>();
      report.weights[i].assign(from, from + weights_[i]->bytes());
      continue;
    }
    std::vector<std::int64_t> bytes;
    bytes.reserve(transport_.size());
    for (int rank = 0; rank < transport_.size(); ++rank) {
      bytes.push_back(IsCopy(planned, rank) ? 0 : HeldBytes(i, rank));
    }
    void* target = nullptr;
    if (rank_ == 0) {
      report.weights[i].resize(
          static_cast<std::size_t>(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0})));
      target = report.weights[i].data();
    }
    WEFT_RETURN_IF_ERROR(world_->GatherV(*stream_, weights_[i]->data(), target, bytes, 0,
                                         {session_.specs[i].name, "output"}));
  }
  return stream_->Synchronize(session_.settings.runtime.deadline);
}

absl::Status RankRunner::CountNotFiniteWeights(RunReport& report) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const ModelTensor& tensor = session_.model.tensors[session_.routing.matrices[i].tensor];
    const auto count =
        static_cast<std::int64_t>(weights_[i]->bytes() / SizeOf(session_.plan.matrices[i].dtype));
    not_finite_.push_back(CountNotFinite(*FileFloatOf(tensor.dtype), weights_[i]->data(), count));
  }
  if (world_ == nullptr) {
    report.not_finite = not_finite_;
    return absl::OkStatus();
  }
  const std::size_t matrices = not_finite_.size();
  not_finite_of_all_.resize(matrices * static_cast<std::size_t>(transport_.size()));
  const std::vector<std::int64_t> bytes(transport_.size(),
                                        static_cast<std::int64_t>(matrices * sizeof(std::int64_t)));
  WEFT_RETURN_IF_ERROR(world_->AllGatherV(*stream_, not_finite_.data(), not_finite_of_all_.data(),
                                          bytes, {"", "finite"}));
  WEFT_RETURN_IF_ERROR(stream_->Synchronize(session_.settings.runtime.deadline));
  if (rank_ != 0) return absl::OkStatus();
  report.not_finite = not_finite_;
  for (std::size_t i = 0; i < matrices; ++i) {
    const PlanMatrix& planned = session_.plan.matrices[i];
    if (planned.layout == Layout::kReplicated) continue;
    for (int rank = 1; rank < transport_.size() && !IsCopy(planned, rank); ++rank) {
      report.not_finite[i] += not_finite_of_all_[static_cast<std::size_t>(rank) * matrices + i];
    }
  }
  return absl::OkStatus();
}

absl::Status RankRunner::Finish(RunReport& report) {
  const Options& options = session_.options;
  if (!options.trace.empty()) WEFT_RETURN_IF_ERROR(runtime_->WriteTrace(options.trace));
  if (rank_ == 0) report.counters = runtime_->Counters();
  WEFT_RETURN_IF_ERROR(CountNotFiniteWeights(report));
  if (options.verify && world_ != nullptr) WEFT_RETURN_IF_ERROR(CompareReplicas(report));
  if (options.verify || !options.out.empty()) WEFT_RETURN_IF_ERROR(CollectWeights(report));
  if (world_ == nullptr) return absl::OkStatus();
  // No rank leaves while another still needs it.
  WEFT_RETURN_IF_ERROR(world_->Barrier(*stream_, {"", "end"}));
  return stream_->Synchronize(session_.settings.runtime.deadline);
}

absl::Status Run(const Session& session, Transport& transport, RankRunner& runner,
                 RunReport& report, const std::function<void(int)>& on_step) {
  WEFT_RETURN_IF_ERROR(runner.Prepare());
  for (int step = 0; step < session.options.steps; ++step) {
    WEFT_RETURN_IF_ERROR(runner.Step(step, report));
    if (transport.rank() == 0 && on_step) on_step(step + 1);
  }
  return runner.Finish(report);
}

}  // namespace

absl::Status InitialWeights(const Session& session, const RoutedMatrix& matrix, std::int64_t first,
                            std::int64_t count, void* to) {
  const ModelTensor& tensor = session.model.tensors[matrix.tensor];
  if (tensor.file != nullptr) return ReadValues(*tensor.file, *tensor.entry, first, count, to);
  SeededValues(session.options.seed, "weight", tensor.name, 0, 0, kSeededDeviation)
      .Fill(first, count, matrix.dtype, to);
  return absl::OkStatus();
}

absl::Status RunRank(const Session& session, Transport& transport, RunReport& report,
                     const std::function<void(int)>& on_step) {
  RankRunner runner(session, transport);
  absl::Status status;
  try {
    status = Run(session, transport, runner, report, on_step);
  } catch (const std::exception& error) {
    // Its peers would wait, and from a thread it would end the process.
    status = absl::ResourceExhaustedError(
        absl::StrCat("rank ", transport.rank(), ": ", SentenceOf(error)));
  }
  if (!status.ok()) transport.Abort(status);
  return status;
}

}  // namespace weft::tool
