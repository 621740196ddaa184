#include "tests/scheduler/simulation.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

namespace weft::testing {
namespace {

// One symbol per row. Sums of gradients are sums of symbols; everything else is a hash, so that a
// symbol tells how its row came about.
using Symbol = std::uint64_t;
using Rows = std::vector<Symbol>;

Symbol Hash(std::initializer_list<Symbol> parts) {
  Symbol state = 0x243f6a8885a308d3u;
  for (Symbol part : parts) {
    state ^= part + 0x9e3779b97f4a7c15u + (state << 6) + (state >> 2);
    state *= 0xff51afd7ed558ccdu;
    state ^= state >> 33;
  }
  return state;
}

Symbol HashAll(const Rows& rows) {
  Symbol state = Hash({rows.size()});
  for (Symbol row : rows) state = Hash({state, row});
  return state;
}

Symbol GradientSymbol(int step, int matrix, int rank, std::int64_t row) {
  return Hash({1, Symbol(step), Symbol(matrix), Symbol(rank), Symbol(row)});
}
Symbol FirstWeight(int matrix, std::int64_t row) { return Hash({2, Symbol(matrix), Symbol(row)}); }
Symbol FirstState(int matrix, std::int64_t row) { return Hash({3, Symbol(matrix), Symbol(row)}); }

Rows Momentum(const Rows& gradient, Rows& state) {
  Rows update;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    state[i] = Hash({4, state[i], gradient[i]});
    update.push_back(Hash({5, state[i], gradient[i]}));
  }
  return update;
}

Rows Orthogonalize(const Rows& update) {
  const Symbol all = HashAll(update);
  Rows direction;
  for (std::size_t i = 0; i < update.size(); ++i) direction.push_back(Hash({6, all, i}));
  return direction;
}

Rows Apply(const Rows& direction, const Rows& weight) {
  Rows result;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    result.push_back(Hash({7, direction[i], weight[i]}));
  }
  return result;
}

Rows Elementwise(const Rows& gradient, Rows& state, const Rows& weight) {
  Rows result;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    state[i] = Hash({8, state[i], gradient[i]});
    result.push_back(Hash({9, state[i], gradient[i], weight[i]}));
  }
  return result;
}

Rows Custom(const Rows& gradient, Rows& state, const Rows& weight) {
  const Symbol all = Hash({HashAll(gradient), HashAll(state), HashAll(weight)});
  Rows result;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    state[i] = Hash({10, all, i});
    result.push_back(Hash({11, all, i}));
  }
  return result;
}

// What the weights of `matrix` must be in the end.
Rows Expected(const Plan& plan, int m, int steps) {
  const PlanMatrix& matrix = plan.matrices[m];
  Rows weight, state;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    weight.push_back(FirstWeight(m, row));
    state.push_back(FirstState(m, row));
  }
  for (int step = 0; step < steps; ++step) {
    Rows gradient(matrix.rows, 0);
    for (int rank = 0; rank < plan.topology.grid.size(); ++rank) {
      for (std::int64_t row = 0; row < matrix.rows; ++row) {
        gradient[row] += GradientSymbol(step, m, rank, row);
      }
    }
    switch (matrix.rule) {
      case RuleKind::kMuon:
        weight = Apply(Orthogonalize(Momentum(gradient, state)), weight);
        break;
      case RuleKind::kElementwise:
        weight = Elementwise(gradient, state, weight);
        break;
      case RuleKind::kCustom:
        weight = Custom(gradient, state, weight);
        break;
    }
  }
  return weight;
}

class Simulator {
 public:
  Simulator(const Plan& plan, int steps, std::uint64_t seed)
      : plan_(plan), steps_(steps), random_(seed), ranks_(plan.lanes.size()) {
    for (int rank = 0; rank < World(); ++rank) Prepare(rank);
  }

  std::string Run() {
    std::vector<std::pair<int, int>> queues;
    std::vector<double> eagerness;
    const auto draw = [&] { return std::uniform_real_distribution<double>()(random_); };
    for (int rank = 0; rank < World(); ++rank) {
      for (int lane = 0; lane <= kLaneCount; ++lane) {
        queues.emplace_back(rank, lane);
        eagerness.push_back(draw() < 0.3 ? 0.05 : 0.6);
      }
    }
    std::vector<std::size_t> order(queues.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    while (error_.empty()) {
      std::shuffle(order.begin(), order.end(), random_);
      bool moved = false;
      for (std::size_t i : order) {
        if (draw() < eagerness[i]) moved = Move(queues[i].first, queues[i].second) || moved;
      }
      if (moved || !error_.empty()) continue;
      for (std::size_t i : order) moved = Move(queues[i].first, queues[i].second) || moved;
      if (!moved) break;
    }
    if (error_.empty()) Compare();
    return error_;
  }

 private:
  enum class Phase { kWaiting, kArrived, kRunning };

  struct Lane {
    std::size_t done = 0;  // ops of all steps
    Phase phase = Phase::kWaiting;
  };

  struct Rank {
    std::array<Lane, kLaneCount> lanes;
    std::vector<std::array<Rows, kSlotCount>> slots;  // by matrix
    std::vector<Rows> state;
    std::vector<int> ops_done;       // per op: runs
    std::vector<int> submitted;      // per matrix: steps
    std::vector<int> gradient_uses;  // per matrix: ops that read the submitted gradient
    std::vector<int> uses_done;
    int steps_closed = 0;
    int checks = 0;  // of all steps
    int checks_each_step = 0;
    int verdicts = 0;
    bool verdict_valid = false;
  };

  // What one member brought to a collective.
  struct Rendezvous {
    std::size_t arrived = 0;
    std::map<int, std::vector<Rows>> sent;  // by rank, of each of the op's matrices
  };

  int World() const { return static_cast<int>(plan_.lanes.size()); }
  bool Contains(const Op& op, int rank) const { return plan_.groups[op.group].PartOf(rank) >= 0; }
  const std::vector<int>& Members(const Op& op, int rank) const {
    const Group& group = plan_.groups[op.group];
    return group.parts[group.PartOf(rank)];
  }
  bool IsRoot(const Op& op, int rank) const {
    return op.root >= 0 && Members(op, rank)[op.root] == rank;
  }
  std::vector<std::int32_t> Matrices(const Op& op) const {
    if (op.set >= 0) return plan_.sets[op.set];
    return op.matrix >= 0 ? std::vector<std::int32_t>{op.matrix} : std::vector<std::int32_t>{};
  }
  bool HoldsShard(const PlanMatrix& matrix) const { return matrix.layout == Layout::kSharded; }
  std::int64_t FirstRow(const PlanMatrix& matrix, int rank) const {
    std::int64_t row = 0;
    for (int r = 0; HoldsShard(matrix) && r < rank; ++r) row += matrix.shard_rows[r];
    return row;
  }
  std::int64_t HeldRows(const PlanMatrix& matrix, int rank) const {
    return HoldsShard(matrix) ? matrix.shard_rows[rank] : matrix.rows;
  }

  void Prepare(int rank) {
    Rank& self = ranks_[rank];
    const std::size_t count = plan_.matrices.size();
    self.slots.resize(count);
    self.state.resize(count);
    self.ops_done.resize(plan_.ops.size());
    self.submitted.resize(count);
    self.gradient_uses.resize(count);
    self.uses_done.resize(count);
    for (std::size_t m = 0; m < count; ++m) {
      const PlanMatrix& matrix = plan_.matrices[m];
      const std::int64_t first = FirstRow(matrix, rank);
      for (std::int64_t i = 0; i < HeldRows(matrix, rank); ++i) {
        At(rank, m, Slot::kWeight).push_back(FirstWeight(static_cast<int>(m), first + i));
      }
    }
    for (const auto& lane : plan_.lanes[rank]) {
      for (std::int32_t index : lane) {
        self.checks_each_step += plan_.ops[index].kind == OpKind::kCheckGradient;
        if (Reads(plan_.ops[index], rank) && plan_.ops[index].source == Slot::kGradient) {
          for (std::int32_t m : Matrices(plan_.ops[index])) ++self.gradient_uses[m];
        }
      }
    }
  }

  Rows& At(int rank, std::size_t matrix, Slot slot) {
    return ranks_[rank].slots[matrix][static_cast<std::size_t>(slot)];
  }

  bool Reads(const Op& op, int rank) const {
    if (op.kind == OpKind::kVerdict) return false;
    return (op.kind != OpKind::kBroadcast && op.kind != OpKind::kScatter) || IsRoot(op, rank);
  }
  bool Writes(const Op& op, int rank) const {
    if (op.kind == OpKind::kVerdict || op.kind == OpKind::kCheckGradient) return false;
    if (op.kind == OpKind::kReduce || op.kind == OpKind::kGather) return IsRoot(op, rank);
    return op.kind != OpKind::kBroadcast || !IsRoot(op, rank);
  }
  bool ChangesModel(const Op& op, int rank) const {
    return op.kind == OpKind::kMomentum || op.kind == OpKind::kElementwise ||
           op.kind == OpKind::kCustom || (Writes(op, rank) && op.target == Slot::kWeight);
  }

  // One step forward of one lane, or of the trainer (lane kLaneCount); false if it has to wait.
  bool Move(int rank, int lane) { return lane == kLaneCount ? Train(rank) : MoveLane(rank, lane); }

  // Submits a gradient or closes the step.
  bool Train(int rank) {
    Rank& self = ranks_[rank];
    const int step = self.steps_closed;
    if (step == steps_) return false;
    std::vector<std::size_t> open;
    bool all = true;
    for (std::size_t m = 0; m < plan_.matrices.size(); ++m) {
      if (self.submitted[m] > step) continue;
      all = false;
      // The memory of the step before must have been read.
      if (self.uses_done[m] == step * self.gradient_uses[m]) open.push_back(m);
    }
    if (all) {
      ++self.steps_closed;
      return true;
    }
    if (open.empty()) return false;
    const std::size_t m =
        open[std::uniform_int_distribution<std::size_t>(0, open.size() - 1)(random_)];
    const PlanMatrix& matrix = plan_.matrices[m];
    const bool local = matrix.gradient == GradientKind::kLocal;
    Rows& gradient = At(rank, m, Slot::kGradient);
    gradient.clear();
    const std::int64_t first = local ? 0 : FirstRow(matrix, rank);
    const std::int64_t count = local ? matrix.rows : HeldRows(matrix, rank);
    for (std::int64_t i = first; i < first + count; ++i) {
      Symbol symbol = 0;
      for (int r = local ? rank : 0; r < (local ? rank + 1 : World()); ++r) {
        symbol += GradientSymbol(step, static_cast<int>(m), r, i);
      }
      gradient.push_back(symbol);
    }
    ++self.submitted[m];
    return true;
  }

  bool MoveLane(int rank, int lane_index) {
    Rank& self = ranks_[rank];
    Lane& lane = self.lanes[lane_index];
    const std::vector<std::int32_t>& list = plan_.lanes[rank][lane_index];
    if (list.empty() || lane.done == list.size() * steps_) return false;
    const int step = static_cast<int>(lane.done / list.size());
    const std::int32_t index = list[lane.done % list.size()];
    const Op& op = plan_.ops[index];
    const bool collective = op.kind <= OpKind::kVerdict;
    // A part meets by its first rank.
    Rendezvous& meeting = meetings_[{index, step, collective ? Members(op, rank)[0] : rank}];
    const std::size_t members = collective ? Members(op, rank).size() : 1;
    switch (lane.phase) {
      case Phase::kWaiting:
        if (!MayStart(self, rank, op, step)) return false;
        lane.phase = Phase::kArrived;
        ++meeting.arrived;
        // Memory may be read from here on, or as late as when all have come.
        if (std::bernoulli_distribution(0.5)(random_)) Send(meeting, rank, op, step);
        return true;
      case Phase::kArrived:
        if (meeting.arrived < members) return false;
        lane.phase = Phase::kRunning;
        Send(meeting, rank, op, step);
        return true;
      case Phase::kRunning:
        if (meeting.sent.size() < members) return false;
        Finish(meeting, rank, op, step);
        ++self.ops_done[index];
        if (Reads(op, rank) && op.source == Slot::kGradient) {
          for (std::int32_t m : Matrices(op)) ++self.uses_done[m];
        }
        ++lane.done;
        lane.phase = Phase::kWaiting;
        return true;
    }
    return false;
  }

  bool MayStart(const Rank& self, int rank, const Op& op, int step) const {
    if (op.trigger == Trigger::kSubmitted) {
      for (std::int32_t m : Matrices(op)) {
        if (self.submitted[m] <= step) return false;
      }
    } else if (self.steps_closed <= step) {
      return false;
    }
    for (std::int32_t before : op.after) {
      if (Contains(plan_.ops[before], rank) && self.ops_done[before] <= step) return false;
    }
    for (std::int32_t before : op.after_previous) {
      if (Contains(plan_.ops[before], rank) && self.ops_done[before] < step) return false;
    }
    return true;
  }

  Rows Garbage() { return {random_(), random_()}; }

  // Reads this member's part and spoils what it will write, once.
  void Send(Rendezvous& meeting, int rank, const Op& op, int step) {
    if (meeting.sent.count(rank) > 0) return;
    Rank& self = ranks_[rank];
    if (op.kind == OpKind::kVerdict) {
      if (self.checks != (step + 1) * self.checks_each_step) {
        Report(op, rank, "runs before the step's checks or after the next step's");
      }
      self.verdict_valid = false;
      meeting.sent[rank] = {};
      return;
    }
    if (op.trigger == Trigger::kStepClosed && (self.verdicts != step + 1 || !self.verdict_valid)) {
      Report(op, rank, "runs without this step's verdict");
    }
    std::vector<Rows>& sent = meeting.sent[rank];
    const bool updates =
        op.kind == OpKind::kApply || op.kind == OpKind::kElementwise || op.kind == OpKind::kCustom;
    for (std::int32_t m : Matrices(op)) {
      sent.push_back(Reads(op, rank) ? At(rank, m, op.source) : Rows());
      if (updates) weights_[{rank, m}] = At(rank, m, op.target);
    }
    if (!Writes(op, rank)) return;
    for (std::int32_t m : Matrices(op)) {
      At(rank, m, op.target) = Garbage();
      for (std::int32_t other : OthersInBuffer(m, op.target)) {
        At(rank, other, op.target) = Garbage();
      }
    }
  }

  // Matrices that take turns with `m` in the buffer of `slot`.
  std::vector<std::int32_t> OthersInBuffer(std::int32_t m, Slot slot) const {
    const auto place = static_cast<std::size_t>(slot);
    const auto set = [&](std::int32_t matrix) {
      const bool batched = slot == Slot::kUpdate || slot == Slot::kDirection;
      return batched ? plan_.matrices[matrix].batch : plan_.matrices[matrix].bucket;
    };
    std::vector<std::int32_t> others;
    for (std::int32_t other = 0; other < static_cast<std::int32_t>(plan_.matrices.size());
         ++other) {
      if (plan_.matrices[other].buffers[place] != plan_.matrices[m].buffers[place]) continue;
      const bool beside = other == m || (set(m) >= 0 && set(other) == set(m));
      if (!beside) others.push_back(other);
    }
    return others;
  }

  void Finish(Rendezvous& meeting, int rank, const Op& op, int step) {
    Rank& self = ranks_[rank];
    if (op.kind == OpKind::kVerdict) {
      self.verdicts = step + 1;
      self.verdict_valid = true;
      return;
    }
    const std::vector<std::int32_t> matrices = Matrices(op);
    if (op.kind == OpKind::kCheckGradient) {
      ++self.checks;
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        const Rows& checked = meeting.sent[rank][i];
        if (checked != ReducedGradient(matrices[i], rank, step, checked.size())) {
          Report(op, rank, "checks what is not the reduced gradient");
        }
      }
      return;
    }
    if (ChangesModel(op, rank) && !self.verdict_valid) {
      Report(op, rank, "runs while the next verdict does");
    }
    if (!Writes(op, rank)) return;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      At(rank, matrices[i], op.target) = Result(meeting, rank, op, matrices[i], i);
    }
  }

  // What an op leaves of one of its matrices.
  Rows Result(Rendezvous& meeting, int rank, const Op& op, std::int32_t m, std::size_t place) {
    const PlanMatrix& matrix = plan_.matrices[m];
    const std::vector<int>& members = Members(op, rank);
    const auto sent = [&](int member) -> const Rows& { return meeting.sent[member][place]; };
    Rows result;
    switch (op.kind) {
      case OpKind::kAllReduce:
      case OpKind::kReduce:
      case OpKind::kReduceScatter:
        result = sent(members[0]);
        for (std::size_t i = 1; i < members.size(); ++i) {
          const Rows& part = sent(members[i]);
          if (part.size() != result.size()) {
            Report(op, rank, "sums unequal lengths");
            return {};
          }
          for (std::size_t row = 0; row < part.size(); ++row) result[row] += part[row];
        }
        if (op.kind == OpKind::kReduceScatter) {
          if (static_cast<std::int64_t>(result.size()) != matrix.rows) {
            Report(op, rank, "scatters a part of the matrix");
          }
          return Cut(result, FirstRow(matrix, rank), matrix.shard_rows[rank]);
        }
        return result;
      case OpKind::kBroadcast:
        return sent(members[op.root]);
      case OpKind::kAllGather:
      case OpKind::kGather:
        for (int member : members) {
          const Rows& part = sent(member);
          result.insert(result.end(), part.begin(), part.end());
        }
        return result;
      case OpKind::kScatter: {
        // A member of a group inside a node gets its rows; one of a group across nodes its node's,
        // if the parts are to be cut further.
        std::int64_t skip = 0, total = 0, mine = 0;
        for (int member : members) {
          const std::int64_t rows = ScatterRows(op, matrix, member);
          if (member < rank) skip += rows;
          if (member == rank) mine = rows;
          total += rows;
        }
        if (total != static_cast<std::int64_t>(sent(members[op.root]).size())) {
          Report(op, rank, "scatters rows that it does not have");
          return {};
        }
        return Cut(sent(members[op.root]), skip, mine);
      }
      default:
        return Compute(sent(rank), rank, op, m);
    }
  }

  // `count` rows of it: the whole, or else the rank's own.
  Rows ReducedGradient(std::int32_t m, int rank, int step, std::size_t count) const {
    const PlanMatrix& matrix = plan_.matrices[m];
    const bool whole = static_cast<std::int64_t>(count) == matrix.rows;
    const std::int64_t first = whole ? 0 : FirstRow(matrix, rank);
    Rows rows(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (int r = 0; r < World(); ++r) {
        rows[i] += GradientSymbol(step, m, r, first + static_cast<std::int64_t>(i));
      }
    }
    return rows;
  }

  std::int64_t ScatterRows(const Op& op, const PlanMatrix& matrix, int member) const {
    if (op.target != Slot::kNodeDirection && op.target != Slot::kNodeWeight) {
      return matrix.shard_rows[member];
    }
    const ProcessGrid& grid = plan_.topology.grid;
    std::int64_t rows = 0;
    for (int r : grid.Intra(grid.node_of(member))) rows += matrix.shard_rows[r];
    return rows;
  }

  static Rows Cut(const Rows& rows, std::int64_t first, std::int64_t count) {
    const std::int64_t size = static_cast<std::int64_t>(rows.size());
    first = std::min(first, size);
    count = std::min(count, size - first);
    return Rows(rows.begin() + first, rows.begin() + first + count);
  }

  Rows Compute(const Rows& source, int rank, const Op& op, std::int32_t m) {
    Rank& self = ranks_[rank];
    const PlanMatrix& matrix = plan_.matrices[m];
    Rows& state = self.state[m];
    const bool shard = HoldsShard(matrix);
    const auto begin_state = [&](std::int64_t first) {
      if (!state.empty()) return;
      for (std::size_t i = 0; i < source.size(); ++i) {
        state.push_back(FirstState(m, first + static_cast<std::int64_t>(i)));
      }
    };
    const bool own_rows =
        shard && static_cast<std::int64_t>(source.size()) == matrix.shard_rows[rank];
    switch (op.kind) {
      case OpKind::kMomentum:
        begin_state(own_rows ? FirstRow(matrix, rank) : 0);
        if (state.size() != source.size()) {
          Report(op, rank, "has a state of another length");
          return {};
        }
        return Momentum(source, state);
      case OpKind::kOrthogonalize:
        if (static_cast<std::int64_t>(source.size()) != matrix.rows) {
          Report(op, rank, "does not see the whole matrix");
        }
        return Orthogonalize(source);
      case OpKind::kApply: {
        const Rows& weight = weights_[{rank, m}];
        const Rows mine = own_rows || !shard
                              ? source
                              : Cut(source, FirstRow(matrix, rank), matrix.shard_rows[rank]);
        if (mine.size() != weight.size()) {
          Report(op, rank, "applies a direction of another length");
          return {};
        }
        return Apply(mine, weight);
      }
      case OpKind::kElementwise:
      case OpKind::kCustom: {
        const Rows& weight = weights_[{rank, m}];
        const bool whole = op.kind == OpKind::kCustom || !shard;
        begin_state(whole ? 0 : FirstRow(matrix, rank));
        if (state.size() != source.size() || weight.size() != source.size()) {
          Report(op, rank, "has state, gradient and weight of unequal lengths");
          return {};
        }
        return op.kind == OpKind::kCustom ? Custom(source, state, weight)
                                          : Elementwise(source, state, weight);
      }
      default:
        return shard ? Cut(source, FirstRow(matrix, rank), matrix.shard_rows[rank]) : source;
    }
  }

  void Compare() {
    for (int rank = 0; rank < World(); ++rank) {
      for (int lane = 0; lane < kLaneCount; ++lane) {
        if (ranks_[rank].lanes[lane].done < plan_.lanes[rank][lane].size() * steps_) {
          error_ = "stuck";
          return;
        }
      }
    }
    for (std::size_t m = 0; m < plan_.matrices.size(); ++m) {
      const PlanMatrix& matrix = plan_.matrices[m];
      const Rows expected = Expected(plan_, static_cast<int>(m), steps_);
      for (int rank = 0; rank < World(); ++rank) {
        if (At(rank, m, Slot::kWeight) !=
            Cut(expected, FirstRow(matrix, rank), HeldRows(matrix, rank))) {
          error_ = "wrong weight of " + matrix.name + " on rank " + std::to_string(rank);
          return;
        }
      }
    }
  }

  void Report(const Op& op, int rank, const char* what) {
    std::ostringstream text;
    text << Name(op.kind) << " of matrix " << op.matrix << " on rank " << rank << " " << what;
    error_ = text.str();
  }

  const Plan& plan_;
  const int steps_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<std::array<int, 3>, Rendezvous> meetings_;
  std::map<std::pair<int, int>, Rows> weights_;  // as read by an op that updates them
  std::string error_;
};

}  // namespace

std::string Simulate(const Plan& plan, int steps, std::uint64_t seed) {
  return Simulator(plan, steps, seed).Run();
}

}  // namespace weft::testing
