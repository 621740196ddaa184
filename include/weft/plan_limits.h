// What a plan may hold and have under way at once.
#pragma once

#include <array>
#include <cstdint>

#pragma GCC visibility push(default)
namespace weft {

// Which ranks a collective joins: all, those of one node, or those with one local rank.
enum class GroupClass : std::uint8_t { kWorld, kIntra, kInter };
inline constexpr int kGroupClassCount = 3;

// How a reduction to one rank, or a broadcast from one, is carried out.
enum class CollectiveForm : std::uint8_t {
  kDirect,  // as one collective
  kSplit    // in equal parts: reduce-scatter and gather; scatter and all-gather
};

// How collectives with a root are carried out, by GroupClass.
struct FormChoices {
  // Payloads from which the split form is taken; -1: never. It holds one part more, ceil(elements /
  // ranks) of them, for each lane (docs/plan.md, "Forms").
  std::array<std::int64_t, kGroupClassCount> reduce_split_from = {-1, -1, -1};
  std::array<std::int64_t, kGroupClassCount> broadcast_split_from = {-1, -1, -1};
  // Payloads from which, in groups of two, two collectives whose roots are opposite run as one
  // (docs/plan.md, "Pairs"); -1: never.
  std::array<std::int64_t, kGroupClassCount> pair_from = {-1, -1, -1};

  friend bool operator==(const FormChoices&, const FormChoices&) = default;
};

struct PlanLimits {
  // Collectives that a rank has under way at once, a pair counting as one: 2 (one on each lane), or
  // 1, for devices whose links are one path, as where GPU and NIC share a root complex: intra and
  // inter collectives then take turns in plan order.
  int collectives_in_flight = 2;
  // Matrices (or buckets) whose intermediate buffers of one kind a rank holds at a time, where they
  // are taken in turn (docs/plan.md, "Buffers"). 1 or more: fewer hold less memory, more let
  // communication run ahead.
  int buffers_in_turn = 4;
  // Small matrices that have one owner, or that every rank updates, travel together while their
  // payload is at most this; 0: each on its own.
  std::int64_t bucket_bytes = 256 << 10;
  // Strategy layerwise: matrices of any owners are reduced by one collective, and published by one,
  // while their payload is at most this (docs/plan.md, "Sets"); 0: each by its own.
  std::int64_t exchange_bytes = 128 << 20;
  // Payload of a reduction or broadcast in direct form above which it is cut into equal pieces, at
  // most 1024. What is published behind a matrix takes turns with its pieces, so that it waits for
  // one of them and not for all; pieces of a reduction, whose jobs come one by one, and of a
  // fetched weight stand one behind the other. 0: never.
  std::int64_t piece_bytes = 0;
  // Layout owned: how many layers before a layer is needed its broadcast between nodes may begin,
  // and that inside nodes (at most as many; on grids of one level only the first counts). Layers
  // 0 ahead are fetched when they are needed.
  int inter_layers_ahead = 2;
  int intra_layers_ahead = 1;
  // Layout owned: layers stay where they are from the forward to the backward pass. Otherwise
  // inter_layers_ahead + 1 of them are held, the others released and fetched again.
  bool keep_through_backward = false;
  // Forward and backward passes per step (micro-steps of accumulated gradients). Layout owned: how
  // often weights are needed. Other layouts: counts with reduce_each_pass alone.
  int passes = 1;
  // A gradient that is local (GradientKind::kLocal) is reduced in each pass and the reduced ones
  // are added where the rule runs; otherwise micro-steps are added on each rank and their sum is
  // reduced once (docs/gradients.md, "Micro-steps"). Every rank then submits as many jobs of such a
  // matrix in a step as there are passes.
  bool reduce_each_pass = false;
  // Layout owned: bytes of fetched weights that a rank may hold; fewer layers are fetched ahead to
  // keep to it. 0: any number.
  std::int64_t fetched_bytes = 0;
  // Bytes of buffers on any one rank: everything that Weft allocates for a plan but optimizer
  // state, owned weights and NS's workspace. In a request 0 means as many as the plan needs; a plan
  // states how many.
  std::int64_t buffer_bytes = 0;

  friend bool operator==(const PlanLimits&, const PlanLimits&) = default;
};

}  // namespace weft
#pragma GCC visibility pop
