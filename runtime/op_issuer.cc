#include "runtime/op_issuer.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "runtime/messages.h"
#include "scheduler/access.h"
#include "scheduler/buffers.h"
#include "scheduler/slots.h"
#include "weft/update.h"

namespace weft::runtime {

absl::StatusOr<std::unique_ptr<OpIssuer>> OpIssuer::Create(Device& device, const Plan& plan,
                                                           const std::vector<MatrixSpec>& specs,
                                                           int rank, const Memory& memory,
                                                           const Communicators& communicators) {
  std::unique_ptr<OpIssuer> issuer(new OpIssuer(device, plan, specs, rank, memory, communicators));
  WEFT_RETURN_IF_ERROR(issuer->PrepareKernels());
  issuer->PrepareExtents();
  return issuer;
}

absl::Status OpIssuer::PrepareKernels() {
  by_matrix_.assign(specs_.size(), nullptr);
  // Matrices (or batches of one size) of one shape and one set of options share a prepared run.
  const auto batch_of = [&](std::int32_t m) {
    const std::int32_t batch = plan_.matrices[m].batch;
    return batch < 0 ? std::int64_t{1} : static_cast<std::int64_t>(plan_.sets[batch].size());
  };
  std::vector<std::int32_t> representative;
  std::size_t workspace_bytes = 0;
  for (const std::int32_t id : plan_.lanes[rank_][static_cast<int>(Lane::kCompute)]) {
    const Op& op = plan_.ops[id];
    if (op.kind == OpKind::kRowNorm) {  // a vector of norms, where a part lies in pieces
      workspace_bytes = std::max(workspace_bytes, specs_[op.matrix].cols * sizeof(float));
    }
    if (op.kind != OpKind::kOrthogonalize) continue;
    const MatrixSpec& spec = specs_[op.matrix];
    const NewtonSchulzOptions& options = std::get<MuonOptions>(spec.rule).newton_schulz;
    const auto found =
        std::find_if(representative.begin(), representative.end(), [&](std::int32_t other) {
          const MatrixSpec& known = specs_[other];
          return known.rows == spec.rows && known.cols == spec.cols &&
                 batch_of(other) == batch_of(op.matrix) && PartsOf(known) == PartsOf(spec) &&
                 std::get<MuonOptions>(known.rule).newton_schulz == options;
        });
    if (found != representative.end()) {
      by_matrix_[op.matrix] = by_matrix_[*found];
      continue;
    }
    const std::int64_t batch = batch_of(op.matrix);
    WEFT_CHECK(batch == 1 || IsOnePart(spec)) << "parts of matrix '" << spec.name << "' in a batch";
    WEFT_ASSIGN_OR_RETURN(
        auto run, batch > 1
                      ? update::PartRuns::OfWholes(device_, options, spec.rows, spec.cols, batch)
                      : update::PartRuns::Create(device_, options, PartsOf(spec), spec.cols));
    workspace_bytes = std::max(workspace_bytes, run->workspace_bytes());
    by_matrix_[op.matrix] = run.get();
    newton_schulz_.push_back(std::move(run));
    representative.push_back(op.matrix);
  }
  WEFT_ASSIGN_OR_RETURN(workspace_, device_.Allocate(workspace_bytes));
  return absl::OkStatus();
}

absl::Status OpIssuer::WarmUp() {
  const base::Range range(kWarmUp, plan_.topology.grid.size());
  const std::unique_ptr<Stream> stream = device_.CreateStream("weft warm-up");
  std::set<const update::PartRuns*> done;
  for (const std::int32_t id : plan_.lanes[rank_][static_cast<int>(Lane::kCompute)]) {
    const Op& op = plan_.ops[id];
    if (op.kind != OpKind::kOrthogonalize || !done.insert(by_matrix_[op.matrix]).second) continue;
    WEFT_RETURN_IF_ERROR(by_matrix_[op.matrix]->Enqueue(
        *stream, static_cast<const float*>(memory_.slot(op.matrix, op.source)),
        static_cast<float*>(memory_.slot(op.matrix, op.target)), workspace_->data()));
  }
  return stream->Synchronize(absl::InfiniteDuration());
}

void OpIssuer::PrepareExtents() {
  for (const auto& lane : plan_.lanes[rank_]) {
    for (const std::int32_t id : lane) {
      const Op& op = plan_.ops[id];
      if (op.kind == OpKind::kVerdict) continue;
      Extent extent;
      const auto width =
          static_cast<std::int64_t>(SizeOf(SlotType(plan_.matrices[op.matrix], op.source)));
      for (const std::int32_t m : MatricesOf(plan_, op)) {
        extent.elements += SlotRows(plan_, m, op.source, rank_) * plan_.matrices[m].cols;
        if (!IsCollective(op.kind)) extent.rows.push_back(RowsOf(op, m));
      }
      if (scheduler::IsExchange(plan_, op)) {
        PrepareExchange(op, width, extent);
      } else if (op.kind == OpKind::kAllGather || op.kind == OpKind::kGather) {
        extent.per_member = PerMember(op, op.matrix, op.source, width);
      } else if (op.kind == OpKind::kScatter) {
        extent.per_member = PerMember(op, op.matrix, op.target, width);
        extent.begin = BytesBefore(op, extent.per_member, width);
      } else if (op.kind == OpKind::kReduceScatter) {
        extent.per_member = PerMember(op, op.matrix, op.target, 1);
      }
      if (op.form == CollectiveForm::kSplit) {
        const Group& group = plan_.groups[op.group];
        const std::size_t members = group.parts[group.PartOf(rank_)].size();
        extent.per_member = DefaultShardRows(extent.elements, static_cast<int>(members));
        for (const std::int64_t elements : extent.per_member) {
          extent.part_bytes.push_back(elements * width);
        }
      }
      extents_[id] = std::move(extent);
    }
  }
}

absl::Status OpIssuer::Issue(absl::Span<const std::int32_t> ids, Stream& stream,
                             const StepArguments& arguments) {
  if (ids.size() == 1) return IssueOne(ids[0], stream, arguments);
  Communicator* const communicator = communicators_.of(plan_.ops[ids[0]].group);
  WEFT_RETURN_IF_ERROR(communicator->GroupStart());
  absl::Status issued;
  for (const std::int32_t id : ids) issued.Update(IssueOne(id, stream, arguments));
  const absl::Status ended = communicator->GroupEnd();
  issued.Update(ended);
  return issued;
}

absl::Status OpIssuer::IssueOne(std::int32_t id, Stream& stream, const StepArguments& arguments) {
  const Op& op = plan_.ops[id];
  if (op.kind == OpKind::kVerdict) return IssueVerdict(op, stream, arguments);
  const Extent& extent = extents_.at(id);
  if (IsCollective(op.kind)) return IssueCollective(op, extent, stream);
  if (op.kind == OpKind::kCustom) return IssueCustom(op, stream, arguments);
  if (op.kind == OpKind::kOrthogonalize) {
    return by_matrix_[op.matrix]->Enqueue(
        stream, static_cast<const float*>(memory_.slot(op.matrix, op.source)),
        static_cast<float*>(memory_.slot(op.matrix, op.target)), workspace_->data());
  }
  const absl::Span<const std::int32_t> matrices = MatricesOf(plan_, op);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    WEFT_RETURN_IF_ERROR(IssueCompute(op, matrices[i], extent.rows[i], stream, arguments));
  }
  return absl::OkStatus();
}

std::vector<std::int64_t> OpIssuer::PerMember(const Op& op, std::int32_t m, Slot slot,
                                              std::int64_t unit) const {
  std::vector<std::int64_t> counts;
  const Group& group = plan_.groups[op.group];
  for (const int member : group.parts[group.PartOf(rank_)]) {
    counts.push_back(SlotRows(plan_, m, slot, member) * plan_.matrices[m].cols * unit);
  }
  return counts;
}

void OpIssuer::PrepareExchange(const Op& op, std::int64_t width, Extent& extent) const {
  for (const std::int32_t m : MatricesOf(plan_, op)) {
    if (op.kind == OpKind::kReduceScatter) {
      const std::vector<std::int64_t> owned = PerMember(op, m, op.target, 1);
      extent.per_member.resize(owned.size());
      for (std::size_t r = 0; r < owned.size(); ++r) extent.per_member[r] += owned[r];
    } else if (op.kind != OpKind::kAllGather) {
      const Slot shard = op.kind == OpKind::kGather ? op.source : op.target;
      extent.by_matrix.push_back(PerMember(op, m, shard, width));
    }
  }
}

absl::Status OpIssuer::IssueVerdict(const Op& op, Stream& stream, const StepArguments& arguments) {
  Communicator* communicator = communicators_.of(op.group);
  if (communicator == nullptr) return absl::OkStatus();
  return communicator->AllReduce(stream, arguments.verdict, arguments.verdict,
                                 arguments.verdict_count, DType::kF32, ReduceOp::kMax,
                                 {"", "verdict"});
}

namespace {

// Null stays null: a rank that does not receive has no target.
const void* At(const void* base, std::int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + bytes;
}
void* At(void* base, std::int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + bytes;
}

}  // namespace

// Sums are formed in rank order in either form, so that the form changes no bit.
absl::Status OpIssuer::IssueSplit(const Op& op, const Extent& extent, Stream& stream,
                                  Communicator& communicator) {
  const PlanMatrix& matrix = plan_.matrices[op.matrix];
  const OpTag tag{matrix.name, Name(op.kind)};
  const DType dtype = SlotType(matrix, op.source);
  const void* source = memory_.slot(op.matrix, op.source);
  void* target = memory_.slot(op.matrix, op.target);
  void* part = memory_.scratch(op.lane);
  if (op.kind == OpKind::kReduce) {
    WEFT_RETURN_IF_ERROR(communicator.ReduceScatterV(stream, source, part, extent.per_member, dtype,
                                                     ReduceOp::kSum, tag));
    return communicator.GatherV(stream, part, target, extent.part_bytes, op.root, tag);
  }
  WEFT_RETURN_IF_ERROR(
      communicator.ScatterV(stream, target, part, extent.part_bytes, op.root, tag));
  return communicator.AllGatherV(stream, part, target, extent.part_bytes, tag);
}

// Gradients lie side by side in the order of their owners, so that one collective reduces them.
// What is published lies where each matrix has it: its collectives run together.
absl::Status OpIssuer::IssueExchange(const Op& op, const Extent& extent, Stream& stream,
                                     Communicator& communicator) {
  const absl::Span<const std::int32_t> matrices = MatricesOf(plan_, op);
  const auto own = std::find_if(matrices.begin(), matrices.end(),
                                [&](std::int32_t m) { return plan_.matrices[m].owner == rank_; });
  if (op.kind == OpKind::kReduceScatter) {
    const PlanMatrix& first = plan_.matrices[op.matrix];
    return communicator.ReduceScatterV(
        stream, memory_.slot(op.matrix, op.source),
        own == matrices.end() ? nullptr : memory_.slot(*own, op.target), extent.per_member,
        SlotType(first, op.source), ReduceOp::kSum, {first.name, Name(op.kind)});
  }
  WEFT_RETURN_IF_ERROR(communicator.GroupStart());
  absl::Status issued;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const PlanMatrix& matrix = plan_.matrices[matrices[i]];
    const OpTag tag{matrix.name, Name(op.kind)};
    const void* source = memory_.slot(matrices[i], op.source);
    void* target = memory_.slot(matrices[i], op.target);
    if (op.kind == OpKind::kAllGather) {
      const auto width = static_cast<std::int64_t>(SizeOf(SlotType(matrix, op.source)));
      issued.Update(communicator.Broadcast(stream, target, matrix.rows * matrix.cols * width,
                                           matrix.owner, tag));
    } else if (op.kind == OpKind::kGather) {
      issued.Update(
          communicator.GatherV(stream, source, target, extent.by_matrix[i], matrix.owner, tag));
    } else {
      issued.Update(
          communicator.ScatterV(stream, source, target, extent.by_matrix[i], matrix.owner, tag));
    }
  }
  issued.Update(communicator.GroupEnd());
  return issued;
}

absl::Status OpIssuer::IssueCollective(const Op& op, const Extent& extent, Stream& stream) {
  Communicator* communicator = communicators_.of(op.group);
  WEFT_CHECK(communicator != nullptr) << "collective on group " << plan_.groups[op.group].name;
  if (scheduler::IsExchange(plan_, op)) {
    return IssueExchange(op, extent, stream, *communicator);
  }
  if (op.form == CollectiveForm::kSplit) return IssueSplit(op, extent, stream, *communicator);
  const scheduler::PieceRange piece = scheduler::PieceOf(extent.elements, op);
  const PlanMatrix& matrix = plan_.matrices[op.matrix];
  const OpTag tag{matrix.name, Name(op.kind)};
  const DType dtype = SlotType(matrix, op.source);
  const auto width = static_cast<std::int64_t>(SizeOf(dtype));
  const void* source = memory_.slot(op.matrix, op.source);
  void* target = memory_.slot(op.matrix, op.target);
  const std::int64_t begin = piece.begin * width;
  switch (op.kind) {
    case OpKind::kAllReduce:
      return communicator->AllReduce(stream, At(source, begin), At(target, begin), piece.count,
                                     dtype, ReduceOp::kSum, tag);
    case OpKind::kReduce:
      return communicator->Reduce(stream, At(source, begin), At(target, begin), piece.count, dtype,
                                  ReduceOp::kSum, op.root, tag);
    case OpKind::kBroadcast:
      return communicator->Broadcast(stream, At(target, begin), piece.count * width, op.root, tag);
    case OpKind::kAllGather:
      return communicator->AllGatherV(stream, source, target, extent.per_member, tag);
    case OpKind::kReduceScatter:
      return communicator->ReduceScatterV(stream, source, target, extent.per_member, dtype,
                                          ReduceOp::kSum, tag);
    case OpKind::kGather:
      return communicator->GatherV(stream, source, target, extent.per_member, op.root, tag);
    case OpKind::kScatter:
      return communicator->ScatterV(stream, At(source, extent.begin), target, extent.per_member,
                                    op.root, tag);
    default:
      return absl::InternalError("not a collective");
  }
}

float OpIssuer::GradientScale(std::int32_t m) const {
  switch (plan_.matrices[m].gradient) {
    case GradientKind::kLocal:
      return 1.0f / static_cast<float>(plan_.topology.grid.size());
    case GradientKind::kReplica:
      return 1.0f / static_cast<float>(plan_.topology.grid.nodes);
    case GradientKind::kReduced:
      break;
  }
  return 1.0f;
}

OpIssuer::Rows OpIssuer::RowsOf(const Op& op, std::int32_t m) const {
  const MatrixSpec& spec = specs_[m];
  const bool sums = op.kind == OpKind::kNormSquares;
  const Slot worked_on = op.target == Slot::kNone || sums ? op.source : op.target;
  const std::int64_t rows = SlotRows(plan_, m, worked_on, rank_);
  const std::int64_t first = FirstRow(m, rows);
  Rows result;
  if (sums || op.kind == OpKind::kRowNorm || op.kind == OpKind::kRowNormBySquares) {
    result.norms.emplace(std::get<MuonOptions>(spec.rule).periodic, PartsOf(spec), spec.cols, first,
                         rows);
    return result;
  }
  result.elements = LogicalRows(spec, first, rows) * spec.cols;
  result.source = OwnRows(op, m);
  if (op.kind == OpKind::kApply) result.pieces = PiecesOf(spec, first, rows);
  return result;
}

std::int64_t OpIssuer::FirstRow(std::int32_t m, std::int64_t rows) const {
  const PlanMatrix& matrix = plan_.matrices[m];
  return rows == matrix.rows ? 0 : RowsBefore(m, rank_);
}

// Of the whole matrix a node's rows may be scattered alone.
std::int64_t OpIssuer::BytesBefore(const Op& op, const std::vector<std::int64_t>& scattered,
                                   std::int64_t width) const {
  const PlanMatrix& matrix = plan_.matrices[op.matrix];
  const std::int64_t row_bytes = matrix.cols * width;
  const std::int64_t source = SlotRows(plan_, op.matrix, op.source, rank_) * row_bytes;
  if (source <= std::accumulate(scattered.begin(), scattered.end(), std::int64_t{0})) return 0;
  const Group& group = plan_.groups[op.group];
  return RowsBefore(op.matrix, group.parts[group.PartOf(rank_)][0]) * row_bytes;
}

std::int64_t OpIssuer::RowsBefore(std::int32_t m, int rank) const {
  const PlanMatrix& matrix = plan_.matrices[m];
  const auto begin = matrix.shard_rows.begin();
  return std::accumulate(begin, begin + scheduler::ShardOf(matrix, rank), std::int64_t{0});
}

const std::byte* OpIssuer::OwnRows(const Op& op, std::int32_t m) const {
  const PlanMatrix& matrix = plan_.matrices[m];
  const auto* whole = static_cast<const std::byte*>(memory_.slot(m, op.source));
  if (op.target == Slot::kNone) return whole;
  const std::int64_t rows = SlotRows(plan_, m, op.target, rank_);
  if (SlotRows(plan_, m, op.source, rank_) == rows) return whole;
  return whole + FirstRow(m, rows) * matrix.cols * SizeOf(SlotType(matrix, op.source));
}

absl::Status OpIssuer::IssueCompute(const Op& op, std::int32_t m, const Rows& rows, Stream& stream,
                                    const StepArguments& in_step) {
  const PlanMatrix& matrix = plan_.matrices[m];
  const MatrixSpec& spec = specs_[m];
  const MatrixArguments& arguments = in_step.matrices[m];
  const std::int64_t count = rows.elements;
  const void* source = rows.source;
  void* target = memory_.slot(m, op.target);
  Math& math = device_.math();
  switch (op.kind) {
    case OpKind::kCheckGradient:
      return math.Norm(stream, count, source, matrix.dtype, GradientScale(m), arguments.norm);
    case OpKind::kMomentum: {
      const auto& rule = std::get<MuonOptions>(spec.rule);
      return math.Momentum(stream, count, source, matrix.dtype, GradientScale(m),
                           static_cast<float>(rule.momentum), rule.nesterov,
                           memory_.state(m).data(), static_cast<float*>(target), arguments.control);
    }
    case OpKind::kRowNorm:
    case OpKind::kRowNormBySquares:
    case OpKind::kNormSquares:
      return IssueRowNorm(op, m, *rows.norms, stream);
    case OpKind::kApply: {
      const auto& rule = std::get<MuonOptions>(spec.rule);
      const auto decay = static_cast<float>(arguments.lr * arguments.weight_decay);
      for (const Piece& piece : rows.pieces) {
        const auto step = static_cast<float>(
            arguments.lr * ScaleFactor(rule.scale, piece.part_rows, piece.part_cols));
        const std::int64_t begin = piece.row * matrix.cols + piece.col;
        const float* direction = static_cast<const float*>(source) + begin;
        void* weight = static_cast<std::byte*>(target) + begin * SizeOf(matrix.dtype);
        if (piece.cols == matrix.cols) {
          WEFT_RETURN_IF_ERROR(math.Apply(stream, piece.rows * piece.cols, decay, step, direction,
                                          weight, matrix.dtype, arguments.control));
          continue;
        }
        Matrix d{const_cast<float*>(direction), DType::kF32, piece.rows, piece.cols, matrix.cols};
        Matrix w{weight, matrix.dtype, piece.rows, piece.cols, matrix.cols};
        WEFT_RETURN_IF_ERROR(math.ApplyMatrix(stream, decay, step, d, w, arguments.control));
      }
      return absl::OkStatus();
    }
    case OpKind::kElementwise: {
      const auto& rule = std::get<AdamWOptions>(spec.rule);
      Math::AdamWArguments adamw;
      adamw.count = count;
      adamw.gradient = source;
      adamw.gradient_type = matrix.dtype;
      adamw.gradient_scale = GradientScale(m);
      adamw.m = memory_.state(m).data();
      // Behind m for all rows held here, padding included.
      adamw.v = count > 0 ? adamw.m + memory_.state(m).size() / 2 : nullptr;
      adamw.weight = target;
      adamw.weight_type = matrix.dtype;
      adamw.lr = arguments.lr;
      adamw.beta1 = rule.beta1;
      adamw.beta2 = rule.beta2;
      adamw.eps = rule.eps;
      adamw.weight_decay = arguments.weight_decay;
      adamw.applied_steps = memory_.applied_steps(m);
      adamw.control = arguments.control;
      return math.AdamW(stream, adamw);
    }
    case OpKind::kAccumulate:
      return math.Add(stream, count, source, target, matrix.dtype);
    case OpKind::kCopyRows:
      device_.Copy(stream, target, source, count * SizeOf(matrix.dtype));
      return absl::OkStatus();
    default:
      return absl::InternalError("not a compute op");
  }
}

absl::Status OpIssuer::IssueRowNorm(const Op& op, std::int32_t m, const update::RowNorms& norms,
                                    Stream& stream) {
  const auto slot = [&](Slot which) { return static_cast<float*>(memory_.slot(m, which)); };
  float* const update = slot(op.source);
  Math& math = device_.math();
  switch (op.kind) {
    case OpKind::kNormSquares:
      return norms.EnqueueSquares(math, stream, update, slot(op.target));
    case OpKind::kRowNormBySquares:
      return norms.EnqueueBySquares(math, stream, update, slot(Slot::kNormSquares),
                                    slot(op.target));
    default:
      return norms.Enqueue(math, stream, update, slot(op.target),
                           static_cast<float*>(workspace_->data()));
  }
}

absl::Status OpIssuer::IssueCustom(const Op& op, Stream& stream, const StepArguments& arguments) {
  const PlanMatrix& matrix = plan_.matrices[op.matrix];
  const RuleContext context{
      .device = device_,
      .stream = stream,
      .matrix = matrix.name,
      .step = arguments.step,
      .rows = matrix.rows,
      .cols = matrix.cols,
      .dtype = matrix.dtype,
      .gradient = memory_.slot(op.matrix, op.source),
      .gradient_scale = GradientScale(op.matrix),
      .state = memory_.state(op.matrix).data(),
      .weight = memory_.slot(op.matrix, op.target),
      .lr = arguments.matrices[op.matrix].lr,
      .weight_decay = arguments.matrices[op.matrix].weight_decay,
      .control = arguments.matrices[op.matrix].control,
  };
  // A caller's function may throw; nothing of Weft's does.
  try {
    return std::get<CustomRule>(specs_[op.matrix].rule).enqueue(context);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("unknown exception");
  }
}

}  // namespace weft::runtime
