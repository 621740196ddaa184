#include "runtime/annotations.h"

#include <map>
#include <string>

#include "base/check.h"
#include "base/shared_library.h"
#include "runtime/op_text.h"
#include "weft/plan_kinds.h"

namespace weft::runtime {
namespace {

// One registration for each text.
class Labels {
 public:
  base::Label of(const std::string& text) {
    const auto [found, fresh] = known_.try_emplace(text);
    if (fresh) found->second = base::Register(text);
    return found->second;
  }

 private:
  std::map<std::string, base::Label> known_;
};

base::Category CategoryOf(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
    case OpKind::kVerdict:
    case OpKind::kCheckGradient:
    case OpKind::kAccumulate:
      return base::Category::kReduce;
    case OpKind::kAllGather:
    case OpKind::kGather:
      return base::Category::kGather;
    case OpKind::kBroadcast:
    case OpKind::kScatter:
      return base::Category::kPublish;
    case OpKind::kOrthogonalize:
      return base::Category::kNewtonSchulz;
    case OpKind::kRowNorm:
    case OpKind::kNormSquares:
    case OpKind::kRowNormBySquares:
    case OpKind::kMomentum:
    case OpKind::kApply:
    case OpKind::kElementwise:
    case OpKind::kCustom:
    case OpKind::kCopyRows:
      return base::Category::kUpdate;
    case OpKind::kUse:
      break;
  }
  WEFT_CHECK(false) << "what the trainer does is not Weft's to annotate";
  return {};
}

}  // namespace

Annotations::Annotations(const Plan& plan, int rank, const Communicators& communicators)
    : plan_(&plan), rank_(rank) {
  set_context_ = reinterpret_cast<decltype(set_context_)>(
      base::LoadedSymbol("libweft-nccl-context.so", "weft_nccl_context_set"));
  if (!base::ToolAttached()) return;
  Labels labels;
  for (const PlanMatrix& matrix : plan.matrices) matrices_.push_back(labels.of(matrix.name));
  ops_.resize(plan.ops.size());
  for (int lane = 0; lane < static_cast<int>(Lane::kCaller); ++lane) {
    for (const std::int32_t id : plan.lanes[rank][lane]) {
      const Op& op = plan.ops[id];
      const Group& group = plan.groups[op.group];
      const Communicator* communicator =
          IsCollective(op.kind) ? communicators.of(op.group) : nullptr;
      base::OpAnnotation& annotation = ops_[id];
      annotation.category = CategoryOf(op.kind);
      annotation.message = labels.of(std::string(Name(op.kind)));
      annotation.payload = {
          .matrix = labels.of(TitleOf(plan, op)),
          .bytes = IsCollective(op.kind) ? PayloadBytes(plan, op, rank) : 0,
          .root = op.root < 0 ? -1 : group.parts[group.PartOf(rank)][op.root],
          .op = id,
          .communicator =
              labels.of(communicator == nullptr ? "none" : std::string(communicator->name())),
          .stage = labels.of(std::string(Name(op.stage))),
      };
    }
  }
}

Annotations::Attribution::Attribution(const Annotations& annotations, std::int32_t op,
                                      std::int64_t step)
    : annotations_(annotations) {
  if (annotations_.set_context_ == nullptr) return;
  const Plan& plan = *annotations_.plan_;
  const Op& first = plan.ops[op];
  const std::int32_t matrix = first.set >= 0 || first.with_next ? -1 : first.matrix;
  const weft_nccl_context context = {
      .step = step,
      .rank = annotations_.rank_,
      .op = op,
      .matrix = matrix,
      .name = matrix < 0 ? nullptr : plan.matrices[matrix].name.c_str(),
  };
  annotations_.set_context_(&context);
}

Annotations::Attribution::~Attribution() {
  if (annotations_.set_context_ != nullptr) annotations_.set_context_(nullptr);
}

}  // namespace weft::runtime
