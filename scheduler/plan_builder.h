// Puts ops into a plan: names groups, knows which lane a group's collectives go on and what they
// carry. The order of the calls is the global order of the ops, except of those that may wait for
// an opposite (ToOwner(), FromOwner(), Fetch()).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "scheduler/sets.h"
#include "scheduler/slots.h"
#include "weft/plan.h"

namespace weft::scheduler {

// The ring of buffers that all ranks use alike.
inline constexpr int kEveryRank = -1;

class PlanBuilder {
 public:
  // `plan` has its topology, strategy and matrices, owners included, and no groups and ops yet.
  PlanBuilder(Plan& plan, const FormChoices& forms);

  const PlanMatrix& matrix(std::int32_t m) const { return plan_.matrices[m]; }
  const ProcessGrid& grid() const { return plan_.topology.grid; }
  bool alone() const { return grid().size() == 1; }
  bool two_level() const { return TwoLevel(grid()); }

  // Groups are made when they are first asked for, so that none stays without an op.
  std::int32_t World();
  std::int32_t Intra();  // every node's ranks
  std::int32_t Node(int node);
  std::int32_t Inter(int local);
  std::int32_t Replicas();  // every local rank's inter group
  std::int32_t Rank(int rank);
  // The ranks that keep the state of a matrix: its owner, its owners on all nodes, or everybody.
  std::int32_t Runners(std::int32_t m);
  // Of a matrix with an owner, or one on each node, the ranks that do not.
  std::int32_t AllButRunners(std::int32_t m);
  // Of its owners one: for work on what they hold alike they take turns.
  std::int32_t AnyOwner(std::int32_t m);
  // For work on what every rank holds alike: the ranks take turns.
  std::int32_t AnyRank(std::int32_t m) { return Rank(m % grid().size()); }
  int buffers_in_turn() const { return plan_.limits.buffers_in_turn; }

  absl::Span<const std::int32_t> TravelsWith(const std::int32_t& m) const {
    return scheduler::TravelsWith(plan_, m);
  }
  double Flops(absl::Span<const std::int32_t> matrices) const;

  struct Place {
    Stage stage;
    Trigger trigger = Trigger::kStepClosed;
    std::int32_t use = -1;
    When when = When::kAlways;
  };
  struct Slots {
    Slot source;
    Slot target;
  };

  // Collectives of the whole matrix over all ranks.
  void OnWorld(OpKind kind, std::int32_t m, Place place, Slots slots, int root = -1);
  // The same over the ranks that its shards lie on: the world, or in each node of their own.
  void OverShards(OpKind kind, std::int32_t m, Place place, Slots slots);
  // A gradient that is not reduced, to where the shards are: into ReducedInto().
  void ReduceToShards(std::int32_t m);
  // Ranks that together have each row of it once.
  std::int32_t HoldersOfShards(std::int32_t m);
  // The same of all matrices in the exchange of `m`, each to or from its owner.
  void OnExchange(OpKind kind, std::int32_t m, Place place, Slots slots);
  // Called for each matrix of an exchange in a phase, tells the last: then all have come.
  bool CompletesExchange(std::int32_t m);
  // From all ranks to the owner: `kind` is kReduce or kGather; `node` holds what lies between the
  // two levels. Where each node has an owner all of them get it, and FromOwner() stays in the node.
  // These, FromOwner() and Fetch() may leave their ops to wait for one that goes the other way
  // (FormChoices::pair_from), until EmitWaiting() at the latest.
  void ToOwner(OpKind kind, std::int32_t m, Place place, Slot source, Slot node, Slot target);
  // From the owner to all ranks: `kind` is kBroadcast or kScatter.
  void FromOwner(OpKind kind, std::int32_t m, Stage on_node, Stage on_rank, Slot source, Slot node,
                 Slot target, When when = When::kAlways);

  // Layout owned: the owner's weight to all ranks, one level of it or both. `level` is kInter or
  // kIntra; with one level, kInter stands for it.
  void Fetch(std::int32_t m, Lane level, std::int32_t use);
  void Use(std::int32_t m, std::int32_t use);
  // The buffer that holds the fetched weight of `m` and of its bucket.
  void FetchInto(std::int32_t m, std::int32_t buffer);
  std::int32_t NewBuffer() { return plan_.buffers++; }

  void Compute(OpKind kind, std::int32_t group, std::int32_t m, Place place, Slots slots,
               double flops = 0);
  void Compute(OpKind kind, std::int32_t group, std::int32_t m, Stage stage, Slots slots,
               double flops = 0) {
    Compute(kind, group, m, Place{stage}, slots, flops);
  }
  // When NS runs on the matrix, and when its row norm.
  When WhenRefreshed(std::int32_t m) const {
    return matrix(m).period > 1 ? When::kRefresh : When::kAlways;
  }
  bool Periodic(std::int32_t m) const { return matrix(m).period > 1; }
  // Periodic, of shards with their updates: row norm of own rows between refreshes, and its apply.
  // SumNormSquares() brings what it needs of other ranks; once for all of a set, with its last.
  void SumNormSquares(std::int32_t m);
  void RowNormOfShards(std::int32_t m);
  // Momentum, NS in the batches that the matrices are in, and apply, of a unit as Path::Update()
  // gets it. Update and direction take turns in buffers of `ring`; a direction that is to travel
  // (`applies` is false) has a buffer of its own.
  void MuonUpdate(std::int32_t group, absl::Span<const std::int32_t> unit, Slot gradient, int ring,
                  bool applies);
  void CheckGradient(std::int32_t group, std::int32_t m, Slot slot);
  // Ops that wait for a submission are of this pass from now on (Op::pass).
  void BeginPass(int pass) { pass_ = pass; }
  // Where the reduction of the open pass leaves the gradient. That of a pass after the first takes
  // its turn there, and is added to what the passes before have left.
  Slot ReducedInto(std::int32_t m);
  void Verdict();

  // The next matrix (or bucket) takes its turn at a buffer of `slot` that those of the same `ring`
  // share: any number, such as the owner's. Call it before the ops that use the buffer. One that
  // has had a turn already, as in an earlier pass, comes to the same buffer.
  void TakeTurn(std::int32_t m, Slot slot, int ring, int places);

  // The ops from `first` on, which no trigger holds back one by one: those that are cut take turns
  // with what comes behind them.
  void Interleave(std::size_t first);
  std::size_t ops() const { return plan_.ops.size(); }

  // Emits the waiting collectives of `trigger`. Call it before an op that needs what they bring.
  void EmitWaiting(Trigger trigger);

  // The rest of a plan: buffers for slots that take no turns, lanes (of one rank alone if
  // `only_rank` >= 0) and the stated bound.
  absl::Status Finish(int only_rank);

 private:
  struct Wire {
    OpKind kind;
    std::int32_t group;
    Lane lane;
    int root;  // world rank, or a place in every part
    std::int64_t rows;
  };
  // One level of the way between a matrix's owner and the others; of one level alone, either.
  Wire WireOf(OpKind kind, std::int32_t m, Lane level);
  // Of a matrix with replicas: inside the node of its owner, or of each owner; between a node's
  // rows and their replicas, with its root, if any, on the owner's node.
  Wire WireInOwnersNode(OpKind kind, std::int32_t m);
  Wire WireOfReplicas(OpKind kind, std::int32_t m);
  Op Make(const Wire& wire, std::int32_t m, Place place, Slots slots) const;
  Op& Push(Op op);
  Op& Emit(const Wire& wire, std::int32_t m, Place place, Slots slots) {
    return Push(Make(wire, m, place, slots));
  }
  // A matrix on its way over one level or two, and what is to follow at once.
  struct Journey {
    std::int32_t m = -1;
    std::vector<Op> legs;
    Slot between = Slot::kNone;  // what it takes its turn at before the first leg
    std::size_t next = 0;
    std::int64_t began = 0;  // counts journeys
  };
  void Begin(Journey journey);
  void GoOn(Journey journey);
  void EmitLeg(Journey& journey);
  void EmitWaiting(std::vector<Journey>::iterator which);
  bool MayPair(const Op& op) const;
  int LocalRankOfOwner(std::int32_t m) const { return grid().local_of(matrix(m).owner); }
  int NodeRing(std::int32_t m) const;
  void TakeNodeTurn(const Journey& journey);
  Op MakeAccumulate(std::int32_t m);
  std::int32_t Add(std::int32_t& index, std::string name, std::vector<std::vector<int>> parts);
  bool OnEachNode(std::int32_t m) const {
    return PathOf(plan_.topology, plan_.strategy, matrix(m)) == PathKind::kNodeLocal;
  }
  bool OnShards(std::int32_t m) const {
    return StateOnShards(PathOf(plan_.topology, plan_.strategy, matrix(m)));
  }
  std::int64_t MostNodeRows(std::int32_t m) const;
  std::int64_t MostShardRows(std::int32_t m) const;
  void GiveBuffers();

  GroupClass ClassOf(const Op& op) const;
  CollectiveForm FormOf(const Op& op) const;
  std::int32_t PiecesOf(const Op& op) const;

  Plan& plan_;
  const FormChoices forms_;
  Lane world_lane_;
  std::int32_t pass_ = 0;
  // Index of each group in the plan, -1 where there is none yet.
  std::int32_t world_ = -1;
  std::int32_t intra_ = -1;
  std::int32_t replicas_ = -1;
  std::vector<std::int32_t> node_, inter_, rank_, all_but_, all_but_inter_;
  struct Ring {
    std::vector<std::int32_t> buffers;
    std::size_t next = 0;
  };
  std::vector<Journey> waiting_;  // the oldest first
  std::int64_t begun_ = 0;
  std::map<std::pair<Slot, int>, Ring> rings_;
  std::map<std::int32_t, std::size_t> come_;  // by exchange: its matrices so far in this phase
};

}  // namespace weft::scheduler
