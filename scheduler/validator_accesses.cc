#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/access.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

// For an op of a rank: the number of ops of each lane that have surely run before it. Counts go on
// through the second step.
using Past = std::array<std::int32_t, kLaneCount>;

struct Touch {
  std::int32_t op = -1;
  std::int32_t number = 0;  // on its lane, from 1
};

struct History {
  int rank = -1;
  int step = -1;  // of the last write
  Touch writer;
  std::array<Touch, kLaneCount> readers;
};

bool IsInput(Resource resource) {
  return resource == static_cast<Resource>(Slot::kGradient) ||
         resource == static_cast<Resource>(Slot::kWeight) || resource == kStateResource ||
         resource == kCheckResource;
}

std::string ResourceText(const Plan& plan, std::int32_t matrix, Resource resource) {
  if (resource == kVerdictResource) return "the verdict";
  if (resource == kCheckResource) return "the results of gradient checks";
  if (resource == kStateResource)
    return absl::StrCat("the state of '", plan.matrices[matrix].name, "'");
  return absl::StrCat(std::string(Name(static_cast<Slot>(resource))), " of '",
                      plan.matrices[matrix].name, "'");
}

class AccessChecker {
 public:
  explicit AccessChecker(const Plan& plan)
      : plan_(plan),
        histories_(ResourceArraySize(plan.matrices.size())),
        here_(plan.ops.size(), -1),
        past_{std::vector<Past>(plan.ops.size()), std::vector<Past>(plan.ops.size())} {}

  absl::Status Run() {
    for (std::size_t rank = 0; rank < plan_.lanes.size(); ++rank) {
      WEFT_RETURN_IF_ERROR(RunRank(static_cast<int>(rank)));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunRank(int rank) {
    rank_ = rank;
    order_.clear();
    for (const auto& lane : plan_.lanes[rank]) {
      const auto sorted = static_cast<std::ptrdiff_t>(order_.size());
      order_.insert(order_.end(), lane.begin(), lane.end());
      std::inplace_merge(order_.begin(), order_.begin() + sorted, order_.end());
    }
    for (std::int32_t index : order_) here_[index] = rank;
    lane_past_ = {};
    for (step_ = 0; step_ < 2; ++step_) {
      for (std::int32_t index : order_) WEFT_RETURN_IF_ERROR(Visit(index));
    }
    return absl::OkStatus();
  }

  absl::Status Visit(std::int32_t index) {
    const Op& op = plan_.ops[index];
    const int lane = static_cast<int>(op.lane);
    Past past = lane_past_[lane];
    Learn(past, op.after, step_);
    if (step_ > 0) Learn(past, op.after_previous, step_ - 1);

    const Accesses accesses = AccessesOf(op, rank_);
    for (const Access& access : accesses) {
      History& history = histories_[ResourceIndex(op.matrix, access.resource)];
      if (history.rank != rank_) {
        history = {};
        history.rank = rank_;
      }
      if (access.reads && !IsInput(access.resource) && history.step != step_) {
        return absl::InvalidArgumentError(
            absl::StrCat("plan: on rank ", rank_, ", ", DescribeOp(plan_, index), " reads ",
                         ResourceText(plan_, op.matrix, access.resource),
                         " before anything has written it in this step."));
      }
      WEFT_RETURN_IF_ERROR(Ordered(past, history.writer, index, access.resource));
      if (!access.writes) continue;
      for (const Touch& reader : history.readers) {
        WEFT_RETURN_IF_ERROR(Ordered(past, reader, index, access.resource));
      }
    }

    const Touch self{index, ++past[lane]};
    for (const Access& access : accesses) {
      History& history = histories_[ResourceIndex(op.matrix, access.resource)];
      if (access.writes) {
        history.writer = self;
        history.step = step_;
        history.readers = {};
      } else {
        history.readers[lane] = self;
      }
    }
    past_[step_][index] = past;
    lane_past_[lane] = past;
    return absl::OkStatus();
  }

  void Learn(Past& past, const std::vector<std::int32_t>& before, int step) const {
    for (std::int32_t index : before) {
      if (here_[index] != rank_) continue;
      const Past& its = past_[step][index];
      for (int lane = 0; lane < kLaneCount; ++lane) past[lane] = std::max(past[lane], its[lane]);
    }
  }

  absl::Status Ordered(const Past& past, const Touch& earlier, std::int32_t index,
                       Resource resource) const {
    if (earlier.op < 0) return absl::OkStatus();
    if (past[static_cast<int>(plan_.ops[earlier.op].lane)] >= earlier.number) {
      return absl::OkStatus();
    }
    const bool previous = earlier.op >= index;
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: on rank ", rank_, ", ", DescribeOp(plan_, index), " does not wait for ",
        DescribeOp(plan_, earlier.op), previous ? " of the step before" : "",
        ", though both touch ", ResourceText(plan_, plan_.ops[index].matrix, resource), "."));
  }

  const Plan& plan_;
  std::vector<History> histories_;
  std::vector<int> here_;                  // the last rank found to have the op
  std::array<std::vector<Past>, 2> past_;  // by step and op, the op itself included
  std::array<Past, kLaneCount> lane_past_ = {};
  std::vector<std::int32_t> order_;
  int rank_ = -1;
  int step_ = 0;
};

}  // namespace

absl::Status CheckAccesses(const Plan& plan) { return AccessChecker(plan).Run(); }

}  // namespace weft::scheduler
