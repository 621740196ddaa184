// What a plan's ops take one by one, worked out from the plan's data, the cost model's collectives
// and the table of docs/evaluator.md: what predictions are held against.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/link_cost.h"
#include "scheduler/dependencies.h"
#include "tests/scheduler/requests.h"
#include "weft/cost_model.h"
#include "weft/plan.h"

namespace weft::testing {

inline constexpr double kPricedFlops = 1e9;  // per second
inline constexpr double kPricedBytes = 2e9;  // per second

inline AnalyticRates PricedRates() {
  return {.flops_per_second = kPricedFlops, .bytes_per_second = kPricedBytes, .launch_seconds = 0};
}

// Links of sizes at which the drawn matrices take about as long as their rules.
inline Topology DrawLinks(const ProcessGrid& grid) {
  Topology topology;
  topology.grid = grid;
  for (Link* link : {&topology.intra, &topology.inter}) {
    link->latency_us = *rc::gen::element(0.0, 1.0, 20.0);
    link->gigabytes_per_second = *rc::gen::element(0.0, 0.25, 1.0, 3.0);
  }
  topology.nics_per_node = *Evenly(0, grid.ranks_per_node + 1);
  topology.intra_class = *rc::gen::element(LinkClass::kPcie, LinkClass::kPcieSwitch,
                                           LinkClass::kNvlink, LinkClass::kShm);
  topology.root_complexes_per_node = *Evenly(1, 3);
  topology.root_complex_gigabytes_per_second = *rc::gen::element(0.0, 0.5, 2.0);
  return topology;
}

inline bool Meets(const Plan& plan, const Op& op) {
  return RunsIn(plan, op, 0) && op.kind <= OpKind::kVerdict &&
         plan.groups[op.group].parts[0].size() > 1;
}

inline GroupClass ClassOf(const Plan& plan, const Op& op) {
  const std::string& name = plan.groups[op.group].name;
  return name == "world"                                   ? GroupClass::kWorld
         : name == "intra" || name.substr(0, 5) == "node " ? GroupClass::kIntra
                                                           : GroupClass::kInter;
}

// Matrices that each go to or from their owner, in collectives that run together.
inline bool RunsTogether(const Plan& plan, const Op& op) {
  return Meets(plan, op) && op.set >= 0 && plan.matrices[op.matrix].exchange == op.set &&
         op.kind != OpKind::kReduceScatter;
}

// What they cost as one of equal parts: that of n ranks has (n - 1) / n of its payload pass each
// port.
inline double PayloadTogether(const Plan& plan, const Topology& topology, const Op& op) {
  const ProcessGrid& grid = topology.grid;
  const int nics = topology.nics_per_node > 0 ? topology.nics_per_node : grid.ranks_per_node;
  std::map<std::string, double> passed;
  const auto send = [&](int from, int to, double bytes) {
    passed["out " + std::to_string(from)] += bytes;
    passed["in " + std::to_string(to)] += bytes;
    if (grid.node_of(from) == grid.node_of(to)) return;
    const auto nic = [&](int rank) {
      return std::to_string(grid.node_of(rank)) + "." + std::to_string(grid.local_of(rank) % nics);
    };
    passed["out of nic " + nic(from)] += bytes;
    passed["in at nic " + nic(to)] += bytes;
  };
  for (const std::int32_t m : MatricesOf(plan, op)) {
    const PlanMatrix& matrix = plan.matrices[m];
    const double row =
        static_cast<double>(matrix.cols) * static_cast<double>(SizeOf(SlotType(matrix, op.source)));
    for (int rank = 0; rank < grid.size(); ++rank) {
      if (rank == matrix.owner) continue;
      if (op.kind == OpKind::kAllGather) {
        passed["in " + std::to_string(rank)] += static_cast<double>(matrix.rows) * row;
      } else if (op.kind == OpKind::kGather) {
        send(rank, matrix.owner, static_cast<double>(matrix.shard_rows[rank]) * row);
      } else {
        send(matrix.owner, rank, static_cast<double>(matrix.shard_rows[rank]) * row);
      }
    }
  }
  double most = 0;
  for (const auto& [port, bytes] : passed) most = std::max(most, bytes);
  return most * grid.size() / (grid.size() - 1);
}

// Of a collective in one part of its group, without its pair.
inline double CollectiveAlone(const Plan& plan, const CostModel& model, const Op& op, int part) {
  const std::vector<int>& members = plan.groups[op.group].parts[part];
  const double bytes = RunsTogether(plan, op)
                           ? PayloadTogether(plan, model.topology(), op)
                           : static_cast<double>(PayloadBytes(plan, op, members[0]));
  const auto cost = [&](OpKind kind) {
    return model.Collective(kind, ClassOf(plan, op), static_cast<int>(members.size()), bytes)
        .seconds;
  };
  if (op.form == CollectiveForm::kDirect) return cost(op.kind);
  return op.kind == OpKind::kReduce ? cost(OpKind::kReduceScatter) + cost(OpKind::kGather)
                                    : cost(OpKind::kScatter) + cost(OpKind::kAllGather);
}

// Bytes that a pass over memory reads and writes on a rank.
inline double TrafficBytes(const Plan& plan, const Op& op, int rank) {
  double bytes = 0;
  for (const std::int32_t m : MatricesOf(plan, op)) {
    const PlanMatrix& matrix = plan.matrices[m];
    const double stored = static_cast<double>(SizeOf(matrix.dtype));
    const auto all = [&](Slot slot, double each) {
      return static_cast<double>(SlotRows(plan, m, slot, rank) * matrix.cols) * each;
    };
    if (op.kind == OpKind::kRowNorm) bytes += all(op.target, 12);
    if (op.kind == OpKind::kRowNormBySquares) bytes += all(op.target, 8);
    if (op.kind == OpKind::kNormSquares) bytes += all(op.source, 4);
    if (op.kind == OpKind::kMomentum) bytes += all(op.target, stored + 12);
    if (op.kind == OpKind::kApply) bytes += all(op.target, 2 * stored + 4);
    if (op.kind == OpKind::kElementwise) {
      bytes += all(op.target, 3 * stored + 2 * static_cast<double>(matrix.state_bytes_per_element));
    }
    if (op.kind == OpKind::kCheckGradient) bytes += all(op.source, stored);
    if (op.kind == OpKind::kAccumulate) bytes += all(op.target, 3 * stored);
    if (op.kind == OpKind::kCopyRows) bytes += all(op.target, 2 * stored);
  }
  return bytes;
}

// Of an op on one of its ranks; the first of a pair stands for both.
inline double Alone(const Plan& plan, const CostModel& model, std::int32_t id, int rank) {
  const Op& op = plan.ops[id];
  if (!RunsIn(plan, op, 0)) return 0;
  if (Meets(plan, op)) {
    if (!op.with_next) {
      return CollectiveAlone(plan, model, op, plan.groups[op.group].PartOf(rank));
    }
    const auto bytes = static_cast<double>(
        std::max(PayloadBytes(plan, op, rank), PayloadBytes(plan, plan.ops[id + 1], rank)));
    return model.Pair(op.kind, ClassOf(plan, op), bytes).seconds;
  }
  double flops = 0;
  if (op.kind == OpKind::kOrthogonalize || op.kind == OpKind::kCustom) {
    for (const std::int32_t m : MatricesOf(plan, op)) {
      const PlanMatrix& matrix = plan.matrices[m];
      if (matrix.rows > 0 && matrix.cols > 0) flops += matrix.flops;
    }
  }
  const double bytes = TrafficBytes(plan, op, rank);
  return std::max((flops + bytes / 4) / kPricedFlops, bytes / kPricedBytes);
}

inline bool IsSecondOfPair(const Plan& plan, std::int32_t id) {
  return id > 0 && plan.ops[id - 1].with_next;
}

// Everything one after another.
inline double SerialSeconds(const Plan& plan, const CostModel& model) {
  double sum = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (IsSecondOfPair(plan, id)) continue;
    for (const std::vector<int>& part : plan.groups[plan.ops[i].group].parts) {
      if (Meets(plan, plan.ops[i])) {
        sum += Alone(plan, model, id, part[0]);
        continue;
      }
      for (const int rank : part) sum += Alone(plan, model, id, rank);
    }
  }
  return sum;
}

// When the last op ends if all gradients are there at once, nobody shares anything, and each op
// begins when its lanes and what its ranks need allow it. Not for owned layouts.
inline double LongestPath(const Plan& plan, const CostModel& model) {
  const std::size_t ranks = plan.lanes.size();
  std::vector<std::vector<scheduler::Predecessors>> needs;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    needs.push_back(scheduler::PredecessorsOn(plan, static_cast<int>(rank)));
  }
  std::vector<std::array<double, kLaneCount>> free(ranks);
  for (auto& lanes : free) lanes.fill(0);
  std::map<std::pair<std::int32_t, int>, double> ends;  // by op and rank
  double last = 0;
  const auto count = static_cast<std::int32_t>(plan.ops.size());
  for (std::int32_t id = 0; id < count; ++id) {
    const Op& op = plan.ops[id];
    const std::int32_t until = op.with_next ? id + 1 : id;
    for (const std::vector<int>& part : plan.groups[op.group].parts) {
      const auto ready = [&](int rank) {
        double at = free[rank][static_cast<int>(op.lane)];
        for (std::int32_t each = id; each <= until; ++each) {
          for (const std::int32_t before : needs[rank][each].after) {
            if (before != id) at = std::max(at, ends.at({before, rank}));
          }
        }
        return at;
      };
      double together = 0;
      for (const int rank : part) together = std::max(together, ready(rank));
      for (const int rank : part) {
        const double begin = Meets(plan, op) ? together : ready(rank);
        const double end = begin + Alone(plan, model, id, rank);
        free[rank][static_cast<int>(op.lane)] = end;
        for (std::int32_t each = id; each <= until; ++each) ends[{each, rank}] = end;
        last = std::max(last, end);
      }
    }
    id = until;
  }
  return last;
}

}  // namespace weft::testing
