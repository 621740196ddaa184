#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/access.h"
#include "scheduler/rank_ops.h"
#include "scheduler/turns.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

struct History {
  int rank = -1;
  std::int32_t turn = 0;  // of the last write
  int step = -1;          // of the last write
  int writer_lane = 0;
  std::int32_t writer = 0;  // its place on its lane
  Frontier readers = {};    // since then
};

// What a step finds there when it begins, on every rank.
bool IsInput(const Plan& plan, const Access& access) {
  if (access.resource == static_cast<Resource>(Slot::kWeight)) {
    return plan.matrices[access.matrix].layout != Layout::kOwned;
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
        ops_(plan),
        turns_(plan.buffers),
        histories_(ResourceArraySize(plan.matrices.size())),
        past_{std::vector<Frontier>(plan.ops.size()), std::vector<Frontier>(plan.ops.size())} {
    for (std::size_t place = 0; place < histories_.size(); ++place) {
      inputs_.push_back(IsInput(plan, AccessAt(place)));
    }
  }

  absl::Status Run() {
    for (std::size_t rank = 0; rank < plan_.lanes.size(); ++rank) {
      if (!RunRank(static_cast<int>(rank))) return error_;
    }
    return absl::OkStatus();
  }

 private:
  // False once something is wrong: error_ says what.
  bool RunRank(int rank) {
    ops_.Begin(rank);
    turns_.BeginRank(rank);
    lane_past_ = {};
    for (int step = 0; step < 2; ++step) {
      for (const RankOps::Item& item : ops_.items()) {
        if (!Visit({step, item.op}, item)) return false;
      }
    }
    return true;
  }

  bool Visit(const StepOp& self, const RankOps::Item& item) {
    const Op& op = plan_.ops[self.op];
    const int lane = static_cast<int>(item.lane);
    // What has surely run before.
    Frontier past = lane_past_[lane];
    Learn(past, op.after, self.step);
    if (self.step > 0) Learn(past, op.after_previous, self.step - 1);
    for (const Touch& touch : item.touches) {
      if (!Check(self, past, touch)) return false;
    }
    const std::int32_t place = ++past[lane];
    past_[self.step][self.op] = past;
    lane_past_[lane] = past;
    for (const Touch& touch : item.touches) {
      History& history = Of(touch);
      const std::int32_t turn = turns_.Leave(touch, lane, place);
      if (touch.writes) {
        history.turn = turn;
        history.step = self.step;
        history.writer_lane = lane;
        history.writer = place;
        history.readers = {};
      } else {
        history.readers[lane] = place;
      }
    }
    return true;
  }

  bool Check(const StepOp& self, const Frontier& past, const Touch& touch) {
    const History& history = Of(touch);
    const Turns::Answer turn = turns_.Enter(touch);
    const bool shared = turn.before != nullptr;
    if (turn.stale || (shared && touch.reads && history.turn != turn.turn)) {
      return Refuse(self, " reads ", ResourceText(plan_, AccessAt(touch.place)),
                    ", whose buffer another has taken");
    }
    const bool finds_it = inputs_[touch.place] || touch.keeper == ops_.rank();
    if (touch.reads && history.step != self.step && !finds_it) {
      return Refuse(self, " reads ", ResourceText(plan_, AccessAt(touch.place)),
                    " before anything has written it in this step");
    }
    // What the second step has written itself is ordered as in the first.
    if (self.step == 1 && history.step == 1) return true;
    if (!Ordered(self, past, history.writer_lane, history.writer, touch)) return false;
    if (!touch.writes) return true;
    return Ordered(self, past, history.readers, touch) &&
           (!shared || history.turn == turn.turn || Ordered(self, past, *turn.before, touch));
  }

  void Learn(Frontier& past, const std::vector<std::int32_t>& before, int step) const {
    for (std::int32_t index : before) {
      if (ops_.Has(index)) Merge(past, past_[step][index]);
    }
  }

  template <typename... Parts>
  bool Refuse(const StepOp& self, const Parts&... parts) {
    error_ = InvalidPlan("on rank ", ops_.rank(), ", ", DescribeOp(plan_, self.op, ops_.rank()),
                         parts...);
    return false;
  }

  bool Ordered(const StepOp& self, const Frontier& past, int lane, std::int32_t place,
               const Touch& touch) {
    if (past[lane] >= place) return true;
    const StepOp earlier = ops_.At(lane, place);
    return Refuse(self, " does not wait for ", DescribeOp(plan_, earlier.op, ops_.rank()),
                  earlier.step < self.step ? " of the step before" : "", ", though both touch ",
                  ResourceText(plan_, AccessAt(touch.place)));
  }
  bool Ordered(const StepOp& self, const Frontier& past, const Frontier& earlier,
               const Touch& touch) {
    for (int lane = 0; lane < kLaneCount; ++lane) {
      if (!Ordered(self, past, lane, earlier[lane], touch)) return false;
    }
    return true;
  }

  History& Of(const Touch& touch) {
    History& history = histories_[touch.place];
    if (history.rank != ops_.rank()) {
      history = {};
      history.rank = ops_.rank();
    }
    return history;
  }

  const Plan& plan_;
  RankOps ops_;
  Turns turns_;
  std::vector<History> histories_;  // by place of the resource, as is inputs_
  std::vector<char> inputs_;
  std::array<std::vector<Frontier>, 2> past_;  // by step and op, which is included
  std::array<Frontier, kLaneCount> lane_past_ = {};
  absl::Status error_;
};

}  // namespace

absl::Status CheckAccesses(const Plan& plan) { return AccessChecker(plan).Run(); }

}  // namespace weft::scheduler
