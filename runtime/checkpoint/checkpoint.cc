#include "runtime/checkpoint/checkpoint.h"

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::runtime {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;

}  // namespace

absl::StatusOr<Description> Checkpoint::Complete(Description own) {
  const std::size_t matrices = own.matrices.size();
  std::vector<std::int64_t> applied(matrices);
  WEFT_RETURN_IF_ERROR(context_.communicators.Agree(
      context_.device.CopyNow(applied.data(), context_.memory.applied_steps(),
                              matrices * sizeof(std::int64_t)),
      "checkpoint"));
  std::vector<std::int64_t> numbers = {own.steps, std::bit_cast<std::int64_t>(own.loss_scale)};
  const std::size_t head = numbers.size();
  constexpr std::size_t kEach = 4;
  for (std::size_t m = 0; m < matrices; ++m) {
    const MatrixRecord& record = own.matrices[m];
    numbers.push_back(applied[m]);
    numbers.push_back(record.integers.at(kLastGradientStep));
    numbers.push_back(std::bit_cast<std::int64_t>(record.lr));
    numbers.push_back(std::bit_cast<std::int64_t>(record.weight_decay));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> all,
                        context_.communicators.ExchangeNumbers(numbers, "checkpoint"));
  for (std::size_t rank = 0; rank * numbers.size() < all.size(); ++rank) {
    const std::int64_t* theirs = all.data() + rank * numbers.size();
    if (theirs[0] != all[0]) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank 0 has closed ", all[0], " steps and rank ", rank, " ", theirs[0]));
    }
    // Ranks that hold nothing of a matrix do not count.
    for (std::size_t m = 0; m < matrices; ++m) {
      applied[m] = std::max(applied[m], theirs[head + m * kEach]);
    }
  }
  own.loss_scale = std::bit_cast<double>(all[1]);
  for (std::size_t m = 0; m < matrices; ++m) {
    MatrixRecord& record = own.matrices[m];
    const std::int64_t* first = all.data() + head + m * kEach;
    if (std::holds_alternative<AdamWOptions>(context_.specs[m].rule)) {
      record.integers[kAppliedSteps] = applied[m];
    }
    record.integers[kLastGradientStep] = first[1];
    record.lr = std::bit_cast<double>(first[2]);
    record.weight_decay = std::bit_cast<double>(first[3]);
  }
  return own;
}

std::byte* Checkpoint::Place(const Tensor& tensor, std::int64_t row) const {
  const auto m = tensor.matrix;
  auto* base = static_cast<std::byte*>(tensor.kind == TensorKind::kWeight
                                           ? context_.memory.slot(m, Slot::kWeight)
                                           : context_.memory.state(m).data());
  if (tensor.kind == TensorKind::kSecondMoment) {
    base += layout_.StoredStateRows(m, context_.rank) * tensor.row_bytes;
  }
  return base + (row - layout_.Held(tensor, context_.rank).first) * tensor.row_bytes;
}

absl::Status Checkpoint::CopyOut(
    const Tensor& tensor, RowRange rows, std::int64_t block_bytes,
    absl::FunctionRef<absl::Status(absl::Span<const std::byte>)> take) {
  const std::int64_t bytes = rows.rows * tensor.row_bytes;
  for (std::int64_t begin = 0; begin < bytes; begin += block_bytes) {
    block_.resize(static_cast<std::size_t>(std::min(block_bytes, bytes - begin)));
    WEFT_RETURN_IF_ERROR(
        context_.device.CopyNow(block_.data(), Place(tensor, rows.first) + begin, block_.size()));
    WEFT_RETURN_IF_ERROR(take(block_));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExportedState> Checkpoint::Export(const ExportOptions& options,
                                                 const Description* description) {
  ExportedState state;
  if (description != nullptr) state.description = ToJson(*description).dump();
  for (const Tensor& tensor : TensorsOf(context_.specs, options.weights)) {
    const RowRange rows = options.every_copy ? layout_.Held(tensor, context_.rank)
                                             : layout_.Written(tensor, context_.rank);
    StateTensor& exported = state.tensors.emplace_back();
    exported.name = tensor.name;
    exported.dtype = tensor.dtype;
    exported.shape = tensor.shape;
    exported.first_row = rows.first;
    exported.rows = rows.rows;
    if (!options.with_data) continue;
    WEFT_RETURN_IF_ERROR(CopyOut(tensor, rows, kBlockBytes, [&](absl::Span<const std::byte> block) {
      exported.data.insert(exported.data.end(), block.begin(), block.end());
      return absl::OkStatus();
    }));
  }
  return state;
}

absl::Status Checkpoint::Check(StateSource& source, const LoadOptions& options,
                               std::vector<std::string>& warnings) {
  WEFT_RETURN_IF_ERROR(CompareModels(source.description(), DescribeModel(context_.specs),
                                     source.subject(),
                                     options.accept_other_options ? &warnings : nullptr));
  for (const Tensor& tensor : TensorsOf(context_.specs, options.weights)) {
    WEFT_RETURN_IF_ERROR(
        source.Read(tensor, layout_.Held(tensor, context_.rank),
                    [](std::int64_t, absl::Span<const std::byte>) { return absl::OkStatus(); }));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Take(StateSource& source, const LoadOptions& options) {
  for (const Tensor& tensor : TensorsOf(context_.specs, options.weights)) {
    const RowRange rows = layout_.Held(tensor, context_.rank);
    if (rows.rows * tensor.row_bytes == 0) continue;
    std::byte* first = Place(tensor, rows.first);
    const auto take = [&](std::int64_t begin, absl::Span<const std::byte> bytes) {
      return context_.device.CopyNow(first + begin - rows.first * tensor.row_bytes, bytes.data(),
                                     bytes.size());
    };
    WEFT_RETURN_IF_ERROR(source.Read(tensor, rows, take));
  }
  std::map<std::string, const MatrixRecord*> records;
  for (const MatrixRecord& record : source.description().matrices) records[record.name] = &record;
  std::vector<std::int64_t> applied;
  for (const MatrixSpec& spec : context_.specs) {
    const auto& integers = records.at(spec.name)->integers;
    const auto found = integers.find(kAppliedSteps);
    applied.push_back(found == integers.end() ? 0 : found->second);
  }
  return context_.device.CopyNow(context_.memory.applied_steps(), applied.data(),
                                 applied.size() * sizeof(std::int64_t));
}

}  // namespace weft::runtime
