#include "tests/scheduler/memory_replay.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <sstream>
#include <utility>

#include "tests/scheduler/interleaving.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

class Replay : public Interleaving {
 public:
  Replay(const Plan& plan, int steps, std::uint64_t seed)
      : Interleaving(plan, steps, seed), ranks_(World()) {
    for (int rank = 0; rank < World(); ++rank) Prepare(rank);
    // The plan's own order tells what each op leaves.
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      for (const std::vector<int>& part : plan.groups[op.group].parts) {
        for (int rank : part) {
          FindRows(op, rank);
          FindVersions(static_cast<std::int32_t>(i), rank);
        }
      }
    }
  }

  MemoryUse Run() {
    MemoryUse use;
    use.error = Play();
    for (const Rank& rank : ranks_) use.peak_bytes.push_back(rank.peak);
    return use;
  }

  std::vector<std::int64_t> MatrixBytes() {
    std::vector<std::int64_t> most(plan().matrices.size());
    for (int rank = 0; rank < World(); ++rank) {
      for (std::size_t m = 0; m < most.size(); ++m) {
        std::int64_t sum = 0;
        for (int s = 1; s < kSlotCount; ++s) {
          const Slot slot = static_cast<Slot>(s);
          const auto matrix = static_cast<std::int32_t>(m);
          if (At(rank, matrix, slot).versions > 0) sum += BytesOf(rank, matrix, slot);
        }
        most[m] = std::max(most[m], sum);
      }
    }
    std::vector<std::array<std::int64_t, kLaneCount>> parts(most.size());
    for (const Op& op : plan().ops) {
      if (op.form != CollectiveForm::kSplit) continue;
      auto members = static_cast<std::int64_t>(World());
      for (const std::vector<int>& part : plan().groups[op.group].parts) {
        members = std::min(members, static_cast<std::int64_t>(part.size()));
      }
      for (std::int32_t m : Matrices(op)) {
        const PlanMatrix& matrix = plan().matrices[m];
        // A block of rows, from one of those that hold it to the others.
        std::int64_t rows = matrix.rows;
        if (matrix.layout == Layout::kNodeSharded && op.lane == weft::Lane::kInter &&
            plan().groups[op.group].parts.size() > 1) {
          rows = *std::max_element(matrix.shard_rows.begin(), matrix.shard_rows.end());
        }
        const std::int64_t elements = (rows * matrix.cols + members - 1) / members;
        std::int64_t& part = parts[m][static_cast<std::size_t>(op.lane)];
        part = std::max(part, elements * Width(matrix, op.source));
      }
    }
    for (std::size_t m = 0; m < most.size(); ++m) {
      most[m] = std::accumulate(parts[m].begin(), parts[m].end(), most[m]);
    }
    return most;
  }

 private:
  // A slot is written, read, and may then be written anew in the same step: a fetched weight in
  // every pass.
  static constexpr int kMostVersions = 8;

  // What a slot holds.
  struct Content {
    std::int64_t rows = 0;
    std::array<std::int16_t, kMostVersions> touches = {};  // by version: ops that read or write it
    std::int8_t versions = 0;                              // in a step
    bool read = false;                                     // the last of them, so far
    std::int16_t left = 0;                                 // touches to come; 0: nothing is alive
    int alive = -1;                                        // step * kMostVersions + version
    int readers = 0;                                       // ops under way
    bool is_written = false;                               // by one under way
  };

  // Of what an op reads and of what it writes, on one rank.
  struct Versions {
    std::int8_t source = 0, target = 0, squares = 0;
  };

  struct Range {
    std::int32_t matrix;
    Slot slot;
    std::int64_t begin, end;
  };

  struct Rank {
    RankBuffers buffers;
    std::vector<Versions> versions;                         // by op
    std::vector<std::array<Content, kSlotCount>> contents;  // by matrix
    std::vector<std::vector<Range>> alive;                  // by buffer; none of them empty
    std::int64_t bytes = 0;
    std::int64_t peak = 0;
    int collectives = 0;  // under way
  };

  // visit(matrix, slot, needs, place): the buffers that an op works in, whether it needs what is
  // there, and which of its versions it is.
  template <typename Visit>
  void ForEachTouch(const Op& op, int rank, const Visit& visit) const {
    const bool in_place = op.kind == OpKind::kAccumulate || op.kind == OpKind::kApply ||
                          op.kind == OpKind::kElementwise || op.kind == OpKind::kCustom ||
                          (op.kind == OpKind::kAllReduce && op.source == op.target);
    for (std::int32_t m : Matrices(op)) {
      if (Reads(op, m, rank) && InBuffer(m, op.source, rank)) {
        visit(m, op.source, true, &Versions::source);
      }
      if (op.kind == OpKind::kRowNormBySquares) {
        visit(m, Slot::kNormSquares, true, &Versions::squares);
      }
      if (Writes(op, m, rank) && InBuffer(m, op.target, rank)) {
        visit(m, op.target, in_place, &Versions::target);
      }
    }
  }

  // visit(matrix, slot, writes): where a run works, in the trainer's memory too.
  template <typename Visit>
  void ForEachSlot(const OpRun& run, const Visit& visit) {
    const Op& op = run.op;
    const bool rewrites = Rewrites(op, run.rank);
    for (std::int32_t m : Matrices(op)) {
      const bool writes = Writes(op, m, run.rank) || rewrites;
      const bool reads = Reads(op, m, run.rank) && !(writes && op.source == op.target);
      if (reads && !IsNothing(run.rank, m, op.source)) visit(m, op.source, false);
      if (op.kind == OpKind::kRowNormBySquares && !IsNothing(run.rank, m, Slot::kNormSquares)) {
        visit(m, Slot::kNormSquares, false);
      }
      if (writes && !IsNothing(run.rank, m, op.target)) visit(m, op.target, true);
    }
  }

  bool InBuffer(std::int32_t m, Slot slot, int rank) const {
    return slot != Slot::kWeight || !KeepsWeight(plan().matrices[m], rank);
  }

  Content& At(int rank, std::int32_t matrix, Slot slot) {
    return ranks_[rank].contents[matrix][static_cast<std::size_t>(slot)];
  }

  void Prepare(int rank) {
    Rank& self = ranks_[rank];
    self.buffers = BuffersOfRank(plan(), rank);
    self.alive.resize(plan().buffers);
    self.contents.resize(plan().matrices.size());
    for (std::size_t i = 0; i < plan().matrices.size(); ++i) {
      const PlanMatrix& matrix = plan().matrices[i];
      const auto m = static_cast<std::int32_t>(i);
      At(rank, m, Slot::kWeight).rows = HeldRows(matrix, rank);
      At(rank, m, Slot::kGradient).rows =
          matrix.gradient == GradientKind::kLocal ? matrix.rows : HeldRows(matrix, rank);
    }
    self.versions.resize(plan().ops.size());
  }

  void FindVersions(std::int32_t index, int rank) {
    ForEachTouch(
        plan().ops[index], rank,
        [&](std::int32_t m, Slot slot, bool needs, std::int8_t Versions::*place) {
          Content& content = At(rank, m, slot);
          if (slot == Slot::kGradient) {
            // Written outside of the plan.
            content.versions =
                static_cast<std::int8_t>(PassOf(plan().matrices[m], plan().ops[index]) + 1);
          } else {
            const bool anew = !needs && content.read;
            if (content.versions == 0 || anew) ++content.versions;
          }
          content.read = needs;
          if (content.versions > kMostVersions) {
            content.versions = kMostVersions;
            Fail("the " + NameOf(m, slot) + " is written too often");
          }
          ++content.touches[content.versions - 1];
          ranks_[rank].versions[index].*place = static_cast<std::int8_t>(content.versions - 1);
        });
  }

  void FindRows(const Op& op, int rank) {
    if (op.target == Slot::kWeight) return;
    for (std::int32_t m : Matrices(op)) {
      if (!Writes(op, m, rank)) continue;
      const PlanMatrix& matrix = plan().matrices[m];
      const auto source = [&](int member) { return At(member, m, op.source).rows; };
      std::int64_t& rows = At(rank, m, op.target).rows;
      switch (op.kind) {
        case OpKind::kReduceScatter:
          rows = IsExchange(op) ? matrix.rows : HeldRows(matrix, rank);
          break;
        case OpKind::kScatter:
          rows = ScatterRows(op, matrix, rank);
          break;
        case OpKind::kBroadcast:
          rows = source(Members(op, rank)[op.root]);
          break;
        case OpKind::kGather:
        case OpKind::kAllGather:
          rows = 0;
          for (int member : Members(op, rank)) rows += source(member);
          break;
        case OpKind::kNormSquares:
          rows = matrix.norm_vectors;
          break;
        case OpKind::kCustom:  // works on whole weights that have been gathered
          rows = matrix.rows;
          break;
        default:
          rows = source(rank);
      }
    }
  }

  void OnSubmit(int rank, std::int32_t m, int step, int pass) override {
    // What no op reads is not kept.
    if (At(rank, m, Slot::kGradient).touches[pass] > 0) Begin(rank, m, Slot::kGradient, step, pass);
  }

  void OnStart(const OpRun& run) override {
    if (Meets(run.op) && !run.joined &&
        ++ranks_[run.rank].collectives > plan().limits.collectives_in_flight) {
      Fail(Describe(run) + " is one collective too many");
    }
    ForEachSlot(run, [&](std::int32_t m, Slot slot, bool writes) {
      Content& content = At(run.rank, m, slot);
      if (content.is_written || (writes && content.readers > 0)) {
        Fail(Describe(run) + (writes ? " writes" : " reads") + " the " + NameOf(m, slot) +
             " while another op " + (content.is_written ? "writes" : "reads") + " it");
      }
      (writes ? content.is_written = true : ++content.readers);
    });
    ForEachTouch(run.op, run.rank,
                 [&](std::int32_t m, Slot slot, bool needs, std::int8_t Versions::*place) {
                   if (IsNothing(run.rank, m, slot)) return;
                   const int version = ranks_[run.rank].versions[run.index].*place;
                   const Content& content = At(run.rank, m, slot);
                   const bool there =
                       content.left > 0 && content.alive == run.step * kMostVersions + version;
                   if (there) return;
                   if (needs) {
                     Fail(Describe(run) + " needs the " + NameOf(m, slot) + ", which is not there");
                   } else if (content.left > 0) {
                     Fail(Describe(run) + " overwrites the " + NameOf(m, slot));
                   } else {
                     Begin(run.rank, m, slot, run.step, version);
                   }
                 });
  }

  void OnFinish(const OpRun& run) override {
    ranks_[run.rank].collectives -= Meets(run.op) && !run.joined;
    ForEachSlot(run, [&](std::int32_t m, Slot slot, bool writes) {
      Content& content = At(run.rank, m, slot);
      (writes ? content.is_written = false : --content.readers);
    });
    ForEachTouch(run.op, run.rank, [&](std::int32_t m, Slot slot, bool, std::int8_t Versions::*) {
      if (IsNothing(run.rank, m, slot)) return;
      if (--At(run.rank, m, slot).left == 0) End(run.rank, m, slot);
    });
  }

  // No rank waits for a part that it does not have.
  bool IsNothing(int rank, std::int32_t m, Slot slot) {
    return HeldByOwnEdges() && BytesOf(rank, m, slot) == 0;
  }

  void Begin(int rank, std::int32_t m, Slot slot, int step, int version) {
    Rank& self = ranks_[rank];
    const PlanMatrix& matrix = plan().matrices[m];
    const std::int32_t buffer = matrix.buffers[static_cast<std::size_t>(slot)];
    Content& content = At(rank, m, slot);
    content.left = content.touches[version];
    content.alive = step * kMostVersions + version;
    const std::int64_t bytes = BytesOf(rank, m, slot);
    if (bytes == 0) return;
    const std::int64_t begin = self.buffers.offsets[m][static_cast<std::size_t>(slot)];
    const Range range{m, slot, begin, begin + bytes};
    if (begin < 0 || range.end > self.buffers.bytes[buffer]) {
      Fail("the " + NameOf(m, slot) + " on rank " + std::to_string(rank) +
           " ends beyond its buffer");
    }
    for (const Range& other : self.alive[buffer]) {
      if (other.end <= range.begin || range.end <= other.begin) continue;
      Fail("the " + NameOf(m, slot) + " on rank " + std::to_string(rank) + " overwrites the " +
           NameOf(other.matrix, other.slot));
    }
    self.alive[buffer].push_back(range);
    self.bytes += bytes;
    self.peak = std::max(self.peak, self.bytes);
  }

  void End(int rank, std::int32_t m, Slot slot) {
    Rank& self = ranks_[rank];
    const std::int64_t bytes = BytesOf(rank, m, slot);
    if (bytes == 0) return;
    self.bytes -= bytes;
    auto& alive = self.alive[plan().matrices[m].buffers[static_cast<std::size_t>(slot)]];
    alive.erase(std::find_if(alive.begin(), alive.end(), [&](const Range& range) {
      return range.matrix == m && range.slot == slot;
    }));
  }

  // Momentum and what comes of it is fp32; gradients and weights are as the trainer has them.
  static std::int64_t Width(const PlanMatrix& matrix, Slot slot) {
    const bool fp32 = slot == Slot::kUpdate || slot == Slot::kWholeUpdate ||
                      slot == Slot::kDirection || slot == Slot::kNodeDirection ||
                      slot == Slot::kShardDirection || slot == Slot::kNodeUpdate ||
                      slot == Slot::kNormSquares;
    return fp32 || matrix.dtype == DType::kF32 ? 4 : 2;
  }

  std::int64_t BytesOf(int rank, std::int32_t m, Slot slot) {
    const PlanMatrix& matrix = plan().matrices[m];
    return At(rank, m, slot).rows * matrix.cols * Width(matrix, slot);
  }

  std::string NameOf(std::int32_t m, Slot slot) const {
    return std::string(Name(slot)) + " of '" + plan().matrices[m].name + "'";
  }

  std::vector<Rank> ranks_;
};

}  // namespace

MemoryUse ReplayMemory(const Plan& plan, int steps, std::uint64_t seed, Edges edges) {
  Replay replay(plan, steps, seed);
  if (edges == Edges::kOfRank) replay.HoldByOwnEdges();
  return replay.Run();
}

std::vector<std::int64_t> MatrixBytes(const Plan& plan) { return Replay(plan, 1, 0).MatrixBytes(); }

}  // namespace weft::testing
