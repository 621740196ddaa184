#include "scheduler/access.h"

namespace weft::scheduler {
namespace {

class Collector {
 public:
  void Read(Slot slot) { Add({static_cast<Resource>(slot), true, false}); }
  void Write(Slot slot) { Add({static_cast<Resource>(slot), false, true}); }
  void Update(Slot slot) { Add({static_cast<Resource>(slot), true, true}); }
  void UpdateState() { Add({kStateResource, true, true}); }
  void Add(Access access) { accesses_.items[accesses_.count++] = access; }

  Accesses Finish() { return accesses_; }

 private:
  Accesses accesses_;
};

}  // namespace

Accesses AccessesOf(const Op& op, int rank) {
  Collector collector;
  const bool root = op.root == rank;
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kOrthogonalize:
    case OpKind::kCopyRows:
      collector.Read(op.source);
      collector.Write(op.target);
      break;
    case OpKind::kReduce:
    case OpKind::kGather:
      collector.Read(op.source);
      if (root) collector.Write(op.target);
      break;
    case OpKind::kBroadcast:
      if (root) {
        collector.Read(op.source);
      } else {
        collector.Write(op.target);
      }
      break;
    case OpKind::kScatter:
      if (root) collector.Read(op.source);
      collector.Write(op.target);
      break;
    case OpKind::kVerdict:
      collector.Add({kCheckResource, true, false});
      collector.Add({kVerdictResource, false, true});
      break;
    case OpKind::kCheckGradient:
      collector.Read(op.source);
      collector.Add({kCheckResource, false, true});
      break;
    case OpKind::kMomentum:
      collector.Read(op.source);
      collector.Write(op.target);
      collector.UpdateState();
      break;
    case OpKind::kApply:
      collector.Read(op.source);
      collector.Update(op.target);
      break;
    case OpKind::kElementwise:
    case OpKind::kCustom:
      collector.Read(op.source);
      collector.Update(op.target);
      collector.UpdateState();
      break;
  }
  if (op.trigger == Trigger::kStepClosed && op.kind != OpKind::kVerdict) {
    collector.Add({kVerdictResource, true, false});
  }
  return collector.Finish();
}

}  // namespace weft::scheduler
