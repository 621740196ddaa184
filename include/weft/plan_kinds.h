// The kinds of things that a plan is made of, and their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

#pragma GCC visibility push(default)
namespace weft {

// How the trainer keeps a parameter.
enum class Layout : std::uint8_t {
  kReplicated,  // every rank holds the whole matrix (DDP)
  kSharded,  // rank r holds a block of rows, in rank order (FSDP2); blocks may be uneven or empty
  kOwned,  // the owner alone keeps it; the others receive it for the time of a layer (like ZeRO-3)
  // Local rank l of every node holds the same block of rows, in the order of local ranks; nodes
  // hold copies (HSDP, tensor parallel by rows in a node with data parallel across). On one node
  // the same as kSharded, with one rank per node the same as kReplicated.
  kNodeSharded,
};

inline constexpr Layout kLastLayout = Layout::kNodeSharded;

// What a job's gradient is when it is submitted.
enum class GradientKind : std::uint8_t {
  kLocal,    // this rank's own, whole matrix: Weft reduces it (mean over the world)
  kReduced,  // already the mean over the world: whole (replicated) or this rank's rows (sharded)
  // kNodeSharded only: this rank's rows of its node's gradient, as tensor parallelism and the
  // reduce-scatter of HSDP leave it. Weft takes the mean over the replicas, the ranks with the same
  // rows: one per node.
  kReplica,
};

inline constexpr GradientKind kLastGradientKind = GradientKind::kReplica;

// What a matrix's update needs.
enum class RuleKind : std::uint8_t {
  kMuon,         // the whole matrix: momentum, direction, apply
  kElementwise,  // nothing but its own elements (AdamW)
  kCustom,       // the caller's function, with whole gradient, state and weight
};

enum class Strategy : std::uint8_t {
  kReplicated,
  kGather,
  kOwner,
  kNodeLocal,  // an owner on each node: the nodes repeat the work
  kLayerwise,  // owners, and collectives of many owners' matrices at once, over the whole world
};

inline constexpr Strategy kLastStrategy = Strategy::kLayerwise;

// A job passes its stages in this order.
enum class Stage : std::uint8_t {
  kSubmitted,
  kReduced,
  kOrthogonalized,
  kApplied,
  kPublished,  // on every node
  kDelivered,  // on every rank that needs it
};
inline constexpr int kStageCount = 6;

enum class Lane : std::uint8_t {
  kCompute,
  kIntra,
  kInter,
  kCaller  // the trainer's own work on weights that it holds for a time
};
inline constexpr int kLaneCount = 4;

enum class OpKind : std::uint8_t {
  // Collectives: a rendezvous of all members of the op's group.
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  // Max all-reduce of kVerdictValues floats per matrix, kVerdictTail and one per rank: what is
  // wrong with the step, whether all ranks would take the same, the norms of the gradients' parts.
  kVerdict,
  // Compute: every member of the op's group runs it on its own.
  kCheckGradient,  // own part of the reduced gradient -> its norm, for the verdict
  kMomentum,       // gradient -> kUpdate, and the momentum state
  kOrthogonalize,  // whole kUpdate -> kDirection
  // Periodic, between the steps in which NS runs: gamma * row norm of the update,
  kRowNorm,           // where each norm's rows are whole: update -> direction
  kNormSquares,       // else the sums of squares over own rows,
  kRowNormBySquares,  // and with kNormSquares summed over the ranks: own rows of update ->
                      // direction
  kApply,             // kDirection -> kWeight
  kElementwise,       // gradient -> kWeight, and the rule's state
  kCustom,            // whole gradient, state and whole weight
  kCopyRows,          // own rows of one weight slot -> another
  kAccumulate,        // kPassGradient, added to kReducedGradient
  kUse,               // the trainer reads kWeight, from ParameterNeeded() to ParameterReleased()
};
bool IsCollective(OpKind kind);
inline constexpr int kVerdictValues = 7;
inline constexpr int kVerdictTail = 2;
constexpr std::int64_t VerdictFloats(std::size_t matrices, int ranks) {
  return static_cast<std::int64_t>(matrices) * kVerdictValues + kVerdictTail + ranks;
}

// In which steps an op has work to do: of a periodic matrix, those in which NS runs, or the others.
// In the rest it keeps its place in the plan's order and does nothing.
enum class When : std::uint8_t { kAlways, kRefresh, kBetween };

// When an op may be issued, beside its dependencies.
enum class Trigger : std::uint8_t {
  kSubmitted,   // this rank has submitted the matrix's gradient of the op's pass
  kStepClosed,  // this rank has called Step()
  kNeeded,      // this rank has come to the op's use, or a later one; at once where that is -1
};

// Where an op reads or writes. Each matrix has at most one buffer per slot and rank; SlotRows()
// says how much of the matrix it holds there.
enum class Slot : std::uint8_t {
  kNone,             // what the op reads or writes is no buffer of the matrix
  kGradient,         // as submitted: whole (local, or replicated) or own rows; gradient dtype
  kNodeGradient,     // after the intra step: whole sum (reduce) or the node's rows (gather)
  kReducedGradient,  // after all reduction: whole on who runs the rule, or own rows
  kPassGradient,     // the same of a pass after the first, where each is reduced
  kWholeGradient,    // whole gradient everywhere (gather strategy, custom rule)
  kUpdate,           // momentum's output U, fp32: whole or own rows
  kWholeUpdate,      // whole U after an all-gather, fp32
  kDirection,        // whole D, fp32
  kNodeDirection,    // the node's rows of D, fp32
  kShardDirection,   // own rows of D, fp32
  kWeight,           // the trainer's memory: whole or own rows
  kNodeWeight,       // the node's rows
  kWholeWeight,      // whole weight gathered for a custom rule
  kPackedWeight,     // whole new weight beside those of its bucket, on its way from the owner
  kNodeUpdate,       // the node's rows of U, fp32, on their way to the owner
  kNormSquares,      // PlanMatrix::norm_vectors sums of squares per column, fp32
};
inline constexpr int kSlotCount = 17;

std::string_view Name(Layout layout);
std::string_view Name(GradientKind kind);
std::string_view Name(RuleKind rule);
std::string_view Name(Strategy strategy);
std::string_view Name(Stage stage);
std::string_view Name(Lane lane);
std::string_view Name(Trigger trigger);
std::string_view Name(When when);
std::string_view Name(OpKind kind);
std::string_view Name(Slot slot);
// InvalidArgument names the known ones.
absl::StatusOr<Strategy> ParseStrategy(std::string_view name);
absl::StatusOr<Layout> ParseLayout(std::string_view name);

}  // namespace weft
#pragma GCC visibility pop
