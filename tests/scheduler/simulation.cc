#include "tests/scheduler/simulation.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "tests/scheduler/interleaving.h"

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

Symbol GradientSymbol(int step, int pass, int matrix, int rank, std::int64_t row) {
  return Hash({1, Symbol(step), Symbol(pass), Symbol(matrix), Symbol(rank), Symbol(row)});
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

// One for each vector of norms: to be added up over rows and ranks.
Rows NormSquares(const Rows& update, std::int64_t vectors) {
  Rows squares(vectors);
  for (std::int64_t v = 0; v < vectors; ++v) {
    for (Symbol row : update) squares[v] += Hash({12, row, Symbol(v)});
  }
  return squares;
}

Rows RowNorm(const Rows& update, const Rows& squares) {
  const Symbol norms = HashAll(squares);
  Rows direction;
  for (Symbol row : update) direction.push_back(Hash({13, row, norms}));
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

// What the weights of `matrix` must be in the end, where the gradients of `passes` passes come.
Rows Expected(const Plan& plan, int m, int passes, int steps) {
  const PlanMatrix& matrix = plan.matrices[m];
  Rows weight, state;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    weight.push_back(FirstWeight(m, row));
    state.push_back(FirstState(m, row));
  }
  for (int step = 0; step < steps; ++step) {
    Rows gradient(matrix.rows, 0);
    for (int rank = 0; rank < plan.topology.grid.size(); ++rank) {
      for (int pass = 0; pass < passes; ++pass) {
        for (std::int64_t row = 0; row < matrix.rows; ++row) {
          gradient[row] += GradientSymbol(step, pass, m, rank, row);
        }
      }
    }
    switch (matrix.rule) {
      case RuleKind::kMuon: {
        const Rows update = Momentum(gradient, state);
        const bool refresh = (step + matrix.period - matrix.phase) % matrix.period == 0;
        weight = Apply(refresh ? Orthogonalize(update)
                               : RowNorm(update, NormSquares(update, matrix.norm_vectors)),
                       weight);
        break;
      }
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

class Simulator : public Interleaving {
 public:
  Simulator(const Plan& plan, int steps, std::uint64_t seed)
      : Interleaving(plan, steps, seed), ranks_(plan.lanes.size()) {
    for (int rank = 0; rank < World(); ++rank) Prepare(rank);
  }

  std::string Run() {
    const std::string error = Play();
    return error.empty() ? Compare() : error;
  }

 private:
  struct Rank {
    std::vector<std::array<Rows, kSlotCount>> slots;  // by matrix
    std::vector<Rows> state;
    int checks = 0;  // of all steps
    int checks_each_step = 0;
    int verdicts = 0;
    bool verdict_valid = false;
  };

  // What the members of a part brought to an op, by rank, of each of the op's matrices.
  using Sent = std::map<int, std::vector<Rows>>;

  void Prepare(int rank) {
    Rank& self = ranks_[rank];
    const std::size_t count = plan().matrices.size();
    self.slots.resize(count);
    self.state.resize(count);
    for (std::size_t m = 0; m < count; ++m) {
      const PlanMatrix& matrix = plan().matrices[m];
      const std::int64_t first = FirstRow(matrix, rank);
      for (std::int64_t i = 0; KeepsWeight(matrix, rank) && i < HeldRows(matrix, rank); ++i) {
        At(rank, m, Slot::kWeight).push_back(FirstWeight(static_cast<int>(m), first + i));
      }
    }
    for (const auto& lane : plan().lanes[rank]) {
      for (std::int32_t index : lane) {
        self.checks_each_step += plan().ops[index].kind == OpKind::kCheckGradient;
      }
    }
  }

  Rows& At(int rank, std::size_t matrix, Slot slot) {
    return ranks_[rank].slots[matrix][static_cast<std::size_t>(slot)];
  }

  bool ChangesModel(const Op& op, int rank) const {
    const absl::Span<const std::int32_t> matrices = Matrices(op);
    return op.kind == OpKind::kMomentum || op.kind == OpKind::kElementwise ||
           op.kind == OpKind::kCustom ||
           (std::any_of(matrices.begin(), matrices.end(),
                        [&](std::int32_t m) { return Writes(op, m, rank); }) &&
            op.target == Slot::kWeight && op.trigger != Trigger::kNeeded);
  }

  bool Works(const OpRun& run) const override {
    if (run.op.when == When::kAlways) return true;
    const PlanMatrix& matrix = plan().matrices[run.op.matrix];
    const bool refresh = (run.step + matrix.period - matrix.phase) % matrix.period == 0;
    return refresh == (run.op.when == When::kRefresh);
  }

  void OnSubmit(int rank, std::int32_t m, int step, int pass) override {
    const PlanMatrix& matrix = plan().matrices[m];
    const bool local = matrix.gradient == GradientKind::kLocal;
    const ProcessGrid& grid = plan().topology.grid;
    // Whose gradients have been added up before.
    const std::vector<int> summed = local ? std::vector<int>{rank}
                                    : matrix.gradient == GradientKind::kReplica
                                        ? grid.Intra(grid.node_of(rank))
                                        : grid.World();
    Rows& gradient = At(rank, m, Slot::kGradient);
    gradient.clear();
    const std::int64_t first = local ? 0 : FirstRow(matrix, rank);
    const std::int64_t count = local ? matrix.rows : HeldRows(matrix, rank);
    for (std::int64_t i = first; i < first + count; ++i) {
      Symbol symbol = 0;
      for (int r : summed) symbol += GradientSymbol(step, pass, m, r, i);
      gradient.push_back(symbol);
    }
  }

  Rows Garbage() { return {draws().Next(), draws().Next()}; }

  // A part meets by its first rank; what is no collective is each rank's own.
  Sent& SentTo(const OpRun& run) {
    const int place = Meets(run.op) ? Members(run.op, run.rank)[0] : run.rank;
    return sent_[{run.index, run.step, place}];
  }

  // Reads this member's part and spoils what it will write.
  void OnRead(const OpRun& run) override {
    const auto& [rank, index, op, step, joined] = run;
    Rank& self = ranks_[rank];
    if (op.kind == OpKind::kVerdict) {
      if (self.checks != (step + 1) * self.checks_each_step) {
        Report(run, "runs before the step's checks or after the next step's");
      }
      self.verdict_valid = false;
      return;
    }
    if (op.trigger == Trigger::kStepClosed && (self.verdicts != step + 1 || !self.verdict_valid)) {
      Report(run, "runs without this step's verdict");
    }
    if (op.piece + 1 < op.pieces) {
      // Of an op in pieces the last stands for all; until then what they write is unfinished.
      const bool in_place = op.kind == OpKind::kAllReduce && op.source == op.target;
      for (std::int32_t m : Matrices(op)) {
        if (Writes(op, m, rank) && !in_place) At(rank, m, op.target) = Garbage();
      }
      return;
    }
    std::vector<Rows>& sent = SentTo(run)[rank];
    const bool updates = op.kind == OpKind::kAccumulate || op.kind == OpKind::kApply ||
                         op.kind == OpKind::kElementwise || op.kind == OpKind::kCustom;
    for (std::int32_t m : Matrices(op)) {
      sent.push_back(Reads(op, m, rank) ? At(rank, m, op.source) : Rows());
      if (updates) before_[{rank, m}] = At(rank, m, op.target);
      if (op.kind == OpKind::kRowNormBySquares) {
        before_[{rank, m}] = At(rank, m, Slot::kNormSquares);
      }
    }
    for (std::int32_t m : Matrices(op)) {
      if (!Writes(op, m, rank)) continue;
      At(rank, m, op.target) = Garbage();
      for (std::int32_t other : OthersInBuffer(rank, m, op.target)) {
        At(rank, other, op.target) = Garbage();
      }
    }
  }

  // Matrices that take turns with `m` in the buffer of `slot`.
  std::vector<std::int32_t> OthersInBuffer(int rank, std::int32_t m, Slot slot) const {
    const auto place = static_cast<std::size_t>(slot);
    const std::vector<PlanMatrix>& matrices = plan().matrices;
    const auto set = [&](std::int32_t matrix) {
      if (slot == Slot::kNormSquares) return matrices[matrix].norm_set;
      const bool batched = slot == Slot::kUpdate || slot == Slot::kDirection;
      const bool reduced =
          slot == Slot::kGradient || slot == Slot::kReducedGradient || slot == Slot::kPassGradient;
      return batched                                              ? matrices[matrix].batch
             : reduced && plan().strategy == Strategy::kLayerwise ? matrices[matrix].exchange
                                                                  : matrices[matrix].bucket;
    };
    std::vector<std::int32_t> others;
    for (std::int32_t other = 0; other < static_cast<std::int32_t>(matrices.size()); ++other) {
      if (matrices[other].buffers[place] != matrices[m].buffers[place]) continue;
      if (slot == Slot::kWeight &&
          (KeepsWeight(matrices[m], rank) || KeepsWeight(matrices[other], rank))) {
        continue;
      }
      const bool beside = other == m || (set(m) >= 0 && set(other) == set(m));
      if (!beside) others.push_back(other);
    }
    return others;
  }

  void OnFinish(const OpRun& run) override {
    const auto& [rank, index, op, step, joined] = run;
    Rank& self = ranks_[rank];
    if (op.kind == OpKind::kVerdict) {
      self.verdicts = step + 1;
      self.verdict_valid = true;
      return;
    }
    if (op.piece + 1 < op.pieces) return;
    const absl::Span<const std::int32_t> matrices = Matrices(op);
    Sent& sent = SentTo(run);
    if (op.kind == OpKind::kUse) {
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        const Rows& expected = WeightAt(matrices[i], step);
        if (sent[rank][i] != expected || At(rank, matrices[i], Slot::kWeight) != expected) {
          Report(run, "does not have the weight from begin to end");
        }
      }
      return;
    }
    if (op.kind == OpKind::kCheckGradient) {
      ++self.checks;
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        const Rows& checked = sent[rank][i];
        if (checked != ReducedGradient(matrices[i], rank, step, checked.size())) {
          Report(run, "checks what is not the reduced gradient");
        }
      }
      return;
    }
    if (ChangesModel(op, rank) && !self.verdict_valid) {
      Report(run, "runs while the next verdict does");
    }
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      if (!Writes(op, matrices[i], rank)) continue;
      At(rank, matrices[i], op.target) = Result(sent, run, matrices[i], i);
    }
  }

  const Rows& WeightAt(std::int32_t m, int step) {
    Rows& rows = expected_[{m, step}];
    if (rows.empty()) rows = Expected(plan(), m, PassesOf(plan().matrices[m]), step);
    return rows;
  }

  // What an op leaves of one of its matrices.
  Rows Result(Sent& all, const OpRun& run, std::int32_t m, std::size_t place) {
    const int rank = run.rank;
    const Op& op = run.op;
    const PlanMatrix& matrix = plan().matrices[m];
    const std::vector<int>& members = Members(op, rank);
    const auto sent = [&](int member) -> const Rows& { return all[member][place]; };
    const bool exchange = IsExchange(op);
    const auto root = [&] { return exchange ? matrix.owner : members[op.root]; };
    Rows result;
    if (exchange && op.kind == OpKind::kAllGather) return sent(root());
    switch (op.kind) {
      case OpKind::kAllReduce:
      case OpKind::kReduce:
      case OpKind::kReduceScatter:
        result = sent(members[0]);
        for (std::size_t i = 1; i < members.size(); ++i) {
          const Rows& part = sent(members[i]);
          if (part.size() != result.size()) {
            Report(run, "sums unequal lengths");
            return {};
          }
          for (std::size_t row = 0; row < part.size(); ++row) result[row] += part[row];
        }
        if (op.kind == OpKind::kReduceScatter) {
          if (static_cast<std::int64_t>(result.size()) != matrix.rows) {
            Report(run, "scatters a part of the matrix");
          }
          if (exchange) return result;
          return Cut(result, FirstRow(matrix, rank), HeldRows(matrix, rank));
        }
        return result;
      case OpKind::kBroadcast:
        return sent(root());
      case OpKind::kAllGather:
      case OpKind::kGather:
        for (int member : members) {
          const Rows& part = sent(member);
          result.insert(result.end(), part.begin(), part.end());
        }
        return result;
      case OpKind::kScatter: {
        std::int64_t skip = 0, total = 0, mine = 0;
        for (int member : members) {
          const std::int64_t rows = ScatterRows(op, matrix, member);
          if (member < rank) skip += rows;
          if (member == rank) mine = rows;
          total += rows;
        }
        const auto sent_rows = static_cast<std::int64_t>(sent(root()).size());
        if (total != sent_rows && sent_rows == matrix.rows) {
          skip += FirstRow(matrix, members[0]);  // a node's rows, of the whole
        } else if (total != sent_rows) {
          Report(run, "scatters rows that it does not have");
          return {};
        }
        return Cut(sent(root()), skip, mine);
      }
      default:
        return Compute(sent(rank), run, m);
    }
  }

  // `count` rows of it: the whole, or else the rank's own.
  Rows ReducedGradient(std::int32_t m, int rank, int step, std::size_t count) const {
    const PlanMatrix& matrix = plan().matrices[m];
    const bool whole = static_cast<std::int64_t>(count) == matrix.rows;
    const std::int64_t first = whole ? 0 : FirstRow(matrix, rank);
    Rows rows(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (int r = 0; r < World(); ++r) {
        for (int pass = 0; pass < PassesOf(matrix); ++pass) {
          rows[i] += GradientSymbol(step, pass, m, r, first + static_cast<std::int64_t>(i));
        }
      }
    }
    return rows;
  }

  static Rows Cut(const Rows& rows, std::int64_t first, std::int64_t count) {
    const std::int64_t size = static_cast<std::int64_t>(rows.size());
    first = std::min(first, size);
    count = std::min(count, size - first);
    return Rows(rows.begin() + first, rows.begin() + first + count);
  }

  Rows Compute(const Rows& source, const OpRun& run, std::int32_t m) {
    const int rank = run.rank;
    const Op& op = run.op;
    Rank& self = ranks_[rank];
    const PlanMatrix& matrix = plan().matrices[m];
    Rows& state = self.state[m];
    const bool shard = HoldsShard(matrix);
    const auto begin_state = [&](std::int64_t first) {
      if (!state.empty()) return;
      for (std::size_t i = 0; i < source.size(); ++i) {
        state.push_back(FirstState(m, first + static_cast<std::int64_t>(i)));
      }
    };
    const bool own_rows =
        shard && static_cast<std::int64_t>(source.size()) == HeldRows(matrix, rank);
    switch (op.kind) {
      case OpKind::kAccumulate: {
        Rows sum = before_[{rank, m}];
        if (sum.size() != source.size()) {
          Report(run, "adds gradients of unequal lengths");
          return {};
        }
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += source[i];
        return sum;
      }
      case OpKind::kMomentum:
        begin_state(own_rows ? FirstRow(matrix, rank) : 0);
        if (state.size() != source.size()) {
          Report(run, "has a state of another length");
          return {};
        }
        return Momentum(source, state);
      case OpKind::kOrthogonalize:
        if (static_cast<std::int64_t>(source.size()) != matrix.rows) {
          Report(run, "does not see the whole matrix");
        }
        return Orthogonalize(source);
      case OpKind::kNormSquares:
        return NormSquares(source, matrix.norm_vectors);
      case OpKind::kRowNormBySquares:
        return RowNorm(source, before_[{rank, m}]);
      case OpKind::kRowNorm:
        if (matrix.norm_vectors > 0 && static_cast<std::int64_t>(source.size()) != matrix.rows) {
          Report(run, "takes norms of rows of which it has a part");
        }
        return RowNorm(source, NormSquares(source, matrix.norm_vectors));
      case OpKind::kApply: {
        const Rows& weight = before_[{rank, m}];
        const Rows mine = own_rows || !shard
                              ? source
                              : Cut(source, FirstRow(matrix, rank), HeldRows(matrix, rank));
        if (mine.size() != weight.size()) {
          Report(run, "applies a direction of another length");
          return {};
        }
        return Apply(mine, weight);
      }
      case OpKind::kElementwise:
      case OpKind::kCustom: {
        const Rows& weight = before_[{rank, m}];
        const bool whole = op.kind == OpKind::kCustom || !shard;
        begin_state(whole ? 0 : FirstRow(matrix, rank));
        if (state.size() != source.size() || weight.size() != source.size()) {
          Report(run, "has state, gradient and weight of unequal lengths");
          return {};
        }
        return op.kind == OpKind::kCustom ? Custom(source, state, weight)
                                          : Elementwise(source, state, weight);
      }
      default:
        return shard ? Cut(source, FirstRow(matrix, rank), HeldRows(matrix, rank)) : source;
    }
  }

  std::string Compare() {
    for (std::size_t m = 0; m < plan().matrices.size(); ++m) {
      const PlanMatrix& matrix = plan().matrices[m];
      const Rows& expected = WeightAt(static_cast<std::int32_t>(m), steps());
      for (int rank = 0; rank < World(); ++rank) {
        if (!KeepsWeight(matrix, rank)) continue;
        if (At(rank, m, Slot::kWeight) !=
            Cut(expected, FirstRow(matrix, rank), HeldRows(matrix, rank))) {
          return "wrong weight of " + matrix.name + " on rank " + std::to_string(rank);
        }
      }
    }
    return "";
  }

  void Report(const OpRun& run, const char* what) { Fail(Describe(run) + " " + what); }

  std::vector<Rank> ranks_;
  std::map<std::array<int, 3>, Sent> sent_;
  std::map<std::pair<int, int>, Rows> before_;    // targets, as read by an op that updates them
  std::map<std::pair<int, int>, Rows> expected_;  // by matrix and step: whole, when it begins
};

}  // namespace

std::string Simulate(const Plan& plan, int steps, std::uint64_t seed) {
  return Simulator(plan, steps, seed).Run();
}

}  // namespace weft::testing
