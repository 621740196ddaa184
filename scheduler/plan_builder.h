// Puts ops into a plan: names groups, knows which lane a group's collectives go on and what they
// carry. The order of the calls is the global order of the ops.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/slots.h"
#include "weft/plan.h"

namespace weft::scheduler {

class PlanBuilder {
 public:
  // `plan` has its topology, strategy and matrices, owners included, and no groups and ops yet.
  explicit PlanBuilder(Plan& plan);

  const PlanMatrix& matrix(std::int32_t m) const { return plan_.matrices[m]; }
  const ProcessGrid& grid() const { return plan_.topology.grid; }
  bool alone() const { return grid().size() == 1; }
  bool two_level() const { return TwoLevel(grid()); }

  // Groups are made when they are first asked for, so that none stays without an op.
  std::int32_t World();
  std::int32_t Intra(int node);
  std::int32_t Inter(int local);
  std::int32_t Rank(int rank);
  // For work on what every rank holds alike: the ranks take turns.
  std::int32_t AnyRank(std::int32_t m) { return Rank(m % grid().size()); }
  Lane WorldLane() const { return world_lane_; }

  struct Place {
    Stage stage;
    Trigger trigger = Trigger::kStepClosed;
  };
  struct Slots {
    Slot source;
    Slot target;
  };

  // Collectives of the whole matrix over all ranks.
  void OnWorld(OpKind kind, std::int32_t m, Place place, Slots slots, int root = -1);
  // From all ranks to the owner: `kind` is kReduce or kGather; `node` holds what lies between the
  // two levels.
  void ToOwner(OpKind kind, std::int32_t m, Place place, Slot source, Slot node, Slot target);
  // From the owner to all ranks: `kind` is kBroadcast or kScatter.
  void FromOwner(OpKind kind, std::int32_t m, Stage on_node, Stage on_rank, Slot source, Slot node,
                 Slot target);

  void Compute(OpKind kind, std::int32_t group, std::int32_t m, Stage stage, Slots slots,
               double flops = 0);
  void CheckGradient(std::int32_t group, std::int32_t m, Slot slot);
  void Verdict();

  // Fills the lanes from the ops.
  void Finish();

 private:
  struct Wire {
    OpKind kind;
    std::int32_t group;
    Lane lane;
    int root;
    std::int64_t rows;
  };
  void Emit(const Wire& wire, std::int32_t m, Place place, Slots slots);
  std::int32_t Add(std::int32_t& index, std::string name, std::vector<int> ranks);

  Plan& plan_;
  Lane world_lane_;
  // Index of each group in the plan, -1 where there is none yet.
  std::int32_t world_ = -1;
  std::vector<std::int32_t> intra_, inter_, rank_;
};

}  // namespace weft::scheduler
