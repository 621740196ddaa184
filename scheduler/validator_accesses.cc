#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/access.h"
#include "scheduler/groups.h"
#include "scheduler/turns.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

// For an op of a rank: the number of ops of each lane that have surely run before it, itself
// included. Counts go on through the second step.
using Past = std::array<std::int32_t, kLaneCount>;

struct History {
  int rank = -1;
  std::int32_t turn = 0;  // of the last write
  StepOp writer;
  LastByLane readers;
};

// What a step finds there when it begins.
bool IsInput(const Plan& plan, const Access& access, int rank) {
  if (access.resource == static_cast<Resource>(Slot::kWeight)) {
    const PlanMatrix& matrix = plan.matrices[access.matrix];
    return matrix.layout != Layout::kOwned || matrix.owner == rank;
  }
  return access.resource == static_cast<Resource>(Slot::kGradient) ||
         access.resource == kStateResource || access.resource == kCheckResource;
}

std::string ResourceText(const Plan& plan, const Access& access) {
  switch (access.resource) {
    case kVerdictResource:
      return "the verdict";
    case kCheckResource:
      return "the results of gradient checks";
    case kPortResource:
      return "the place of the one collective in flight";
    case kStateResource:
      return absl::StrCat("the state of '", plan.matrices[access.matrix].name, "'");
    default:
      return absl::StrCat(std::string(Name(static_cast<Slot>(access.resource))), " of '",
                          plan.matrices[access.matrix].name, "'");
  }
}

class AccessChecker {
 public:
  explicit AccessChecker(const Plan& plan)
      : plan_(plan),
        groups_(plan),
        turns_(plan),
        histories_(ResourceArraySize(plan.matrices.size())),
        here_(plan.ops.size(), -1),
        past_{std::vector<Past>(plan.ops.size()), std::vector<Past>(plan.ops.size())} {}

  absl::Status Run() {
    for (std::size_t rank = 0; rank < plan_.lanes.size(); ++rank) {
      if (!RunRank(static_cast<int>(rank))) return error_;
    }
    return absl::OkStatus();
  }

 private:
  // False once something is wrong: error_ says what.
  bool RunRank(int rank) {
    rank_ = rank;
    turns_.BeginRank(rank);
    OpsOfRank(plan_, rank, order_);
    for (std::int32_t index : order_) here_[index] = rank;
    lane_past_ = {};
    for (int step = 0; step < 2; ++step) {
      for (std::int32_t index : order_) {
        if (!Visit({step, index})) return false;
      }
    }
    return true;
  }

  bool Visit(const StepOp& self) {
    const Op& op = plan_.ops[self.op];
    const int lane = static_cast<int>(op.lane);
    Past past = lane_past_[lane];
    Learn(past, op.after, self.step);
    if (self.step > 0) Learn(past, op.after_previous, self.step - 1);

    const bool root = groups_.IsRoot(op, rank_);
    bool fine = true;
    ForEachAccess(plan_, op, root,
                  [&](const Access& access) { fine = fine && Check(self, past, access); });
    if (!fine) return false;

    ++past[lane];
    past_[self.step][self.op] = past;
    lane_past_[lane] = past;
    ForEachAccess(plan_, op, root, [&](const Access& access) {
      History& history = Of(access);
      turns_.Leave(access, self, op.lane);
      if (access.writes) {
        history.writer = self;
        history.turn = turns_.turn(access);
        history.readers = {};
      } else {
        history.readers[lane] = self;
      }
    });
    return true;
  }

  bool Check(const StepOp& self, const Past& past, const Access& access) {
    const History& history = Of(access);
    const Turns::Answer turn = turns_.Enter(access);
    const bool shared = turn.before != nullptr;
    if (turn.stale || (shared && access.reads && history.turn != turn.turn)) {
      return Refuse(self, " reads ", ResourceText(plan_, access),
                    ", whose buffer another has taken");
    }
    if (access.reads && !IsInput(plan_, access, rank_) && history.writer.step != self.step) {
      return Refuse(self, " reads ", ResourceText(plan_, access),
                    " before anything has written it in this step");
    }
    // What the second step has written itself is ordered as in the first.
    if (self.step == 1 && history.writer.step == 1) return true;
    if (!Ordered(self, past, history.writer, access)) return false;
    if (!access.writes) return true;
    for (const StepOp& reader : history.readers) {
      if (!Ordered(self, past, reader, access)) return false;
    }
    if (turn.before == nullptr || history.turn == turn.turn) return true;
    for (const StepOp& before : *turn.before) {
      if (!Ordered(self, past, before, access)) return false;
    }
    return true;
  }

  void Learn(Past& past, const std::vector<std::int32_t>& before, int step) const {
    for (std::int32_t index : before) {
      if (here_[index] != rank_) continue;
      const Past& its = past_[step][index];
      for (int lane = 0; lane < kLaneCount; ++lane) past[lane] = std::max(past[lane], its[lane]);
    }
  }

  template <typename... Parts>
  bool Refuse(const StepOp& self, const Parts&... parts) {
    error_ = InvalidPlan("on rank ", rank_, ", ", DescribeOp(plan_, self.op, rank_), parts...);
    return false;
  }

  bool Ordered(const StepOp& self, const Past& past, const StepOp& earlier, const Access& access) {
    if (earlier.op < 0) return true;
    const auto lane = static_cast<std::size_t>(plan_.ops[earlier.op].lane);
    if (past[lane] >= past_[earlier.step][earlier.op][lane]) return true;
    return Refuse(self, " does not wait for ", DescribeOp(plan_, earlier.op, rank_),
                  earlier.step < self.step ? " of the step before" : "", ", though both touch ",
                  ResourceText(plan_, access));
  }

  History& Of(const Access& access) {
    History& history = histories_[ResourceIndex(access)];
    if (history.rank != rank_) {
      history = {};
      history.rank = rank_;
    }
    return history;
  }

  const Plan& plan_;
  const GroupIndex groups_;
  Turns turns_;
  std::vector<History> histories_;
  std::vector<int> here_;                  // the last rank found to have the op
  std::array<std::vector<Past>, 2> past_;  // by step and op
  std::array<Past, kLaneCount> lane_past_ = {};
  std::vector<std::int32_t> order_;
  absl::Status error_;
  int rank_ = -1;
};

}  // namespace

absl::Status CheckAccesses(const Plan& plan) { return AccessChecker(plan).Run(); }

}  // namespace weft::scheduler
