#include "tests/scheduler/interleaving.h"

#include <numeric>
#include <sstream>
#include <utility>

namespace weft::testing {

Interleaving::Interleaving(const Plan& plan, int steps, std::uint64_t seed)
    : plan_(plan), steps_(steps), draws_(seed), ranks_(plan.lanes.size()) {
  for (const Group& group : plan_.groups) {
    std::vector<int>& part_of = part_of_.emplace_back(World(), -1);
    for (std::size_t part = 0; part < group.parts.size(); ++part) {
      for (int rank : group.parts[part]) part_of[rank] = static_cast<int>(part);
    }
  }
  std::size_t meetings = 0;
  for (const Op& op : plan_.ops) {
    first_meeting_.push_back(meetings);
    if (Meets(op)) meetings += plan_.groups[op.group].parts.size();
  }
  meetings_.resize(meetings);
  for (int rank = 0; rank < World(); ++rank) {
    Rank& self = ranks_[rank];
    self.ops_done.resize(plan_.ops.size());
    for (const PlanMatrix& matrix : plan_.matrices) {
      self.gradient_uses.emplace_back(PassesOf(matrix));
    }
    self.uses_done.resize(plan_.matrices.size());
    self.submitted.resize(plan_.matrices.size());
    OpenPass(self, 0);
    for (const auto& lane : plan_.lanes[rank]) {
      for (std::int32_t index : lane) {
        const Op& op = plan_.ops[index];
        if (op.source != Slot::kGradient) continue;
        for (std::int32_t m : Matrices(op)) {
          if (!Reads(op, m, rank)) continue;
          ++self.gradient_uses[m].at(PassOf(plan_.matrices[m], op));
        }
      }
    }
  }
  is_awake_.assign(ranks_.size() * kQueues, false);
  for (std::size_t i = 0; i < is_awake_.size(); ++i) Wake(static_cast<int>(i));
}

void Interleaving::HoldByOwnEdges() {
  for (int rank = 0; rank < World(); ++rank) {
    own_edges_.push_back(scheduler::PredecessorsOn(plan_, rank));
  }
}

std::string Interleaving::Play() {
  // Some queues are slow.
  std::vector<std::uint32_t> percent;
  for (std::size_t i = 0; i < is_awake_.size(); ++i)
    percent.push_back(draws_.Below(10) < 3 ? 5 : 60);
  while (error_.empty() && !awake_.empty()) {
    const std::size_t place = draws_.Below(awake_.size());
    const int queue = awake_[place];
    if (draws_.Below(100) >= percent[queue]) continue;
    if (Move(queue)) continue;
    is_awake_[queue] = false;
    awake_[place] = awake_.back();
    awake_.pop_back();
  }
  if (!error_.empty()) return error_;
  for (int rank = 0; rank < World(); ++rank) {
    for (int lane = 0; lane < kLaneCount; ++lane) {
      if (ranks_[rank].lanes[lane].done < plan_.lanes[rank][lane].size() * steps_) return "stuck";
    }
  }
  return "";
}

std::string Interleaving::Describe(const OpRun& run) const {
  std::ostringstream text;
  text << Name(run.op.kind) << " of matrix " << run.op.matrix << " on rank " << run.rank;
  return text.str();
}

absl::Span<const std::int32_t> Interleaving::Matrices(const Op& op) const {
  if (op.set >= 0) return plan_.sets[op.set];
  return {&op.matrix, op.matrix >= 0 ? std::size_t{1} : std::size_t{0}};
}

bool Interleaving::Reads(const Op& op, std::int32_t m, int rank) const {
  if (op.kind == OpKind::kVerdict) return false;
  if (IsExchange(op)) {
    const bool from_owner = op.kind == OpKind::kAllGather || op.kind == OpKind::kScatter;
    return !from_owner || plan_.matrices[m].owner == rank;
  }
  return (op.kind != OpKind::kBroadcast && op.kind != OpKind::kScatter) || IsRoot(op, rank);
}

bool Interleaving::Writes(const Op& op, std::int32_t m, int rank) const {
  if (op.kind == OpKind::kVerdict || op.kind == OpKind::kCheckGradient || op.kind == OpKind::kUse) {
    return false;
  }
  if (IsExchange(op)) {
    const bool owner = plan_.matrices[m].owner == rank;
    return op.kind == OpKind::kScatter || owner == (op.kind != OpKind::kAllGather);
  }
  if (op.kind == OpKind::kReduce || op.kind == OpKind::kGather) return IsRoot(op, rank);
  return op.kind != OpKind::kBroadcast || !IsRoot(op, rank);
}

std::int64_t Interleaving::FirstRow(const PlanMatrix& matrix, int rank) {
  if (!HoldsShard(matrix)) return 0;
  const auto begin = matrix.shard_rows.begin();
  return std::accumulate(begin, begin + ShardOf(matrix, rank), std::int64_t{0});
}

std::int64_t Interleaving::ScatterRows(const Op& op, const PlanMatrix& matrix, int member) const {
  if (op.target != Slot::kNodeDirection && op.target != Slot::kNodeWeight) {
    return HeldRows(matrix, member);
  }
  const ProcessGrid& grid = plan_.topology.grid;
  std::int64_t rows = 0;
  for (int r : grid.Intra(grid.node_of(member))) rows += HeldRows(matrix, r);
  return rows;
}

// One move of one queue; false if it has to wait.
bool Interleaving::Move(int queue) {
  const int rank = queue / kQueues, lane = queue % kQueues;
  return lane == kLaneCount ? Train(rank) : MoveLane(rank, lane);
}

// What is handed over once comes with the last pass.
void Interleaving::OpenPass(Rank& self, int pass) const {
  self.pass = pass;
  self.to_be_submitted.clear();
  for (std::size_t m = 0; m < plan_.matrices.size(); ++m) {
    if (pass + 1 < plan_.limits.passes && PassesOf(plan_.matrices[m]) == 1) continue;
    self.to_be_submitted.push_back(static_cast<std::int32_t>(m));
  }
}

// The memory of the pass before, or of the step before, must have been read.
bool Interleaving::GradientIsFree(const Rank& self, std::int32_t matrix) const {
  const std::vector<int>& uses = self.gradient_uses[matrix];
  const int pass = uses.size() > 1 ? self.pass : 0;
  const int in_step = std::accumulate(uses.begin(), uses.begin() + pass, 0);
  return self.uses_done[matrix] ==
         std::accumulate(uses.begin(), uses.end(), 0) * self.steps_closed + in_step;
}

// Asks for a use, submits a gradient or closes the step.
bool Interleaving::Train(int rank) {
  Rank& self = ranks_[rank];
  const int step = self.steps_closed;
  if (step == steps_) return false;
  std::vector<std::int32_t>& open = self.to_be_submitted;
  const int uses = static_cast<int>(plan_.uses.size()) * (step + 1);
  if (self.asked < uses && (open.empty() || draws_.Below(2) == 0)) {
    ++self.asked;
    WakeLanes(rank);
    return true;
  }
  const auto caller = static_cast<std::size_t>(weft::Lane::kCaller);
  if (open.empty() && self.pass + 1 < plan_.limits.passes) {
    OpenPass(self, self.pass + 1);
    return true;
  }
  if (open.empty()) {
    if (self.lanes[caller].done < plan_.lanes[rank][caller].size() * (step + 1)) return false;
    ++self.steps_closed;
    OpenPass(self, 0);
    WakeLanes(rank);
    return true;
  }
  const std::size_t first = draws_.Below(open.size());
  for (std::size_t i = 0; i < open.size(); ++i) {
    std::int32_t& entry = open[(first + i) % open.size()];
    const std::int32_t m = entry;
    if (!GradientIsFree(self, m)) continue;
    entry = open.back();
    open.pop_back();
    OnSubmit(rank, m, step, PassesOf(plan_.matrices[m]) > 1 ? self.pass : 0);
    ++self.submitted[m];
    WakeLanes(rank);
    return true;
  }
  return false;
}

// What runs as one starts, reads and ends together, in either order.
std::vector<OpRun> Interleaving::Together(int rank, std::int32_t index, int step) {
  const OpRun first{rank, index, plan_.ops[index], step};
  if (!plan_.ops[index].with_next) return {first};
  const OpRun second{rank, index + 1, plan_.ops[index + 1], step, /*joined=*/true};
  if (draws_.Below(2) == 0) return {second, first};
  return {first, second};
}

bool Interleaving::MoveLane(int rank, int lane_index) {
  Rank& self = ranks_[rank];
  Lane& lane = self.lanes[lane_index];
  const std::vector<std::int32_t>& list = plan_.lanes[rank][lane_index];
  if (list.empty() || lane.done == list.size() * steps_) return false;
  const int step = static_cast<int>(lane.done / list.size());
  const std::int32_t index = list[lane.done % list.size()];
  const Op& op = plan_.ops[index];
  const std::vector<OpRun> runs = Together(rank, index, step);
  Meeting alone;
  alone.arrived = lane.phase != Phase::kWaiting;
  alone.read = lane.has_read;
  const bool meets = Meets(op) && Works(runs[0]);
  Meeting& meeting =
      meets ? meetings_[first_meeting_[index] + part_of_[op.group][rank]][step % 2] : alone;
  const std::size_t members = meets ? Members(op, rank).size() : 1;
  switch (lane.phase) {
    case Phase::kWaiting:
      for (const OpRun& run : runs) {
        if (!MayStart(self, rank, run.index, step)) return false;
      }
      lane.phase = Phase::kArrived;
      ++meeting.arrived;
      for (const OpRun& run : runs) {
        if (Works(run)) OnStart(run);
      }
      // Memory may be read from here on, or as late as when all have come.
      if (draws_.Below(2) == 0) Read(runs, lane, meeting);
      if (meeting.arrived == members) WakeMembers(runs[0]);
      return true;
    case Phase::kArrived:
      if (meeting.arrived < members) return false;
      lane.phase = Phase::kRunning;
      Read(runs, lane, meeting);
      return true;
    case Phase::kRunning:
      if (meeting.read < members) return false;
      // The next step but one meets here again; until then everybody has finished.
      if (++meeting.finished == members) meeting = {};
      for (const OpRun& run : runs) Finish(run);
      lane.done += runs.size();
      lane.phase = Phase::kWaiting;
      lane.has_read = false;
      WakeLanes(rank);
      if (op.kind == OpKind::kUse) Wake(rank * kQueues + kLaneCount);
      return true;
  }
  return false;
}

void Interleaving::Finish(const OpRun& run) {
  Rank& self = ranks_[run.rank];
  if (Works(run)) OnFinish(run);
  ++self.ops_done[run.index];
  if (run.op.source != Slot::kGradient) return;
  for (std::int32_t m : Matrices(run.op)) self.uses_done[m] += Reads(run.op, m, run.rank);
  Wake(run.rank * kQueues + kLaneCount);
}

bool Interleaving::MayStart(const Rank& self, int rank, std::int32_t index, int step) const {
  const Op& op = plan_.ops[index];
  if (op.trigger == Trigger::kSubmitted) {
    for (std::int32_t m : Matrices(op)) {
      const PlanMatrix& matrix = plan_.matrices[m];
      if (self.submitted[m] <= step * PassesOf(matrix) + PassOf(matrix, op)) return false;
    }
  } else if (op.trigger == Trigger::kNeeded) {
    const int uses = static_cast<int>(plan_.uses.size());
    if (op.use < 0 ? self.steps_closed < step : self.asked <= step * uses + op.use) return false;
  } else if (self.steps_closed <= step) {
    return false;
  }
  const bool own = !own_edges_.empty();
  for (std::int32_t before : own ? own_edges_[rank][index].after : op.after) {
    if (Contains(plan_.ops[before], rank) && self.ops_done[before] <= step) return false;
  }
  for (std::int32_t before : own ? own_edges_[rank][index].after_previous : op.after_previous) {
    if (Contains(plan_.ops[before], rank) && self.ops_done[before] < step) return false;
  }
  return true;
}

void Interleaving::Read(const std::vector<OpRun>& runs, Lane& lane, Meeting& meeting) {
  if (lane.has_read) return;
  lane.has_read = true;
  for (const OpRun& run : runs) {
    if (Works(run)) OnRead(run);
  }
  if (++meeting.read == Members(runs[0].op, runs[0].rank).size()) WakeMembers(runs[0]);
}

void Interleaving::Wake(int queue) {
  if (is_awake_[queue]) return;
  is_awake_[queue] = true;
  awake_.push_back(queue);
}

void Interleaving::WakeLanes(int rank) {
  for (int lane = 0; lane < kLaneCount; ++lane) Wake(rank * kQueues + lane);
}

void Interleaving::WakeMembers(const OpRun& run) {
  if (!Meets(run.op)) return;
  for (int member : Members(run.op, run.rank)) {
    Wake(member * kQueues + static_cast<int>(run.op.lane));
  }
}

}  // namespace weft::testing
