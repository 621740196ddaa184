// Layout owned: when which layer's weights travel to all ranks, and into which buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan_builder.h"
#include "weft/plan.h"

namespace weft::scheduler {

// Emits the fetches and uses of the passes. `plan` has its owners and buckets. Of a plan without
// owned matrices nothing comes.
//
// The layers of a pass take turns in the buffers of `held` layers. A layer that is still in its
// buffers when the backward pass comes to it is not fetched again.
class UseBuilder {
 public:
  UseBuilder(Plan& plan, PlanBuilder& builder) : plan_(plan), builder_(builder) {}

  // Settles how many layers are held, keeps limits.fetched_bytes and writes into the limits what
  // has come of it. FailedPrecondition, naming the layer, where one layer is too much.
  absl::Status Prepare();
  // Everything before the backward pass of `pass`.
  void EmitForward(int pass);
  // That backward pass down to the layer of `m`, which may be of any layout.
  void EmitBackwardUpTo(std::int32_t m, int pass);

 private:
  struct Layer {
    std::int32_t number = 0;
    std::vector<std::int32_t> travellers;  // in use order
    std::int64_t bytes = 0;
  };
  // A layer's place in the order of one pass.
  struct Visit {
    int layer = 0;
    bool fetched = true;  // false: it is still held
  };

  std::int64_t BytesHeld(int held) const;
  void FetchLayer(int visit, Lane level, std::int32_t use);
  void EmitVisit(int visit);

  Plan& plan_;
  PlanBuilder& builder_;
  std::vector<Layer> layers_;
  std::vector<Visit> visits_;  // Plan::uses, in order
  int held_ = 0;
  int next_ = 0;  // visit to emit
};

}  // namespace weft::scheduler
