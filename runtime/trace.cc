#include "runtime/trace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/string_view.h"
#include "runtime/op_text.h"

namespace weft::runtime {
namespace {

constexpr int kTrainerTid = static_cast<int>(Lane::kCaller);

using base::View;

// A JSON string literal; invalid UTF-8 is replaced, so that the file always parses.
std::string Quote(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class EventWriter {
 public:
  EventWriter(int rank, Nanos origin) : rank_(rank), origin_(origin) {}

  void Metadata(std::string_view kind, int tid, std::string_view name) {
    Begin();
    absl::StrAppendFormat(&text_, R"({"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{"name":%s}})",
                          rank_, tid, View(kind), Quote(name));
  }
  // What was taken from this rank's monotonic nanoseconds: with it, files that other programs of
  // the rank wrote can be laid over this one (scripts/merge-traces).
  void Origin() {
    Begin();
    absl::StrAppendFormat(
        &text_, R"({"ph":"M","pid":%d,"tid":0,"name":"weft_origin","args":{"monotonic_ns":%d}})",
        rank_, origin_);
  }
  void Slice(int tid, std::string_view name, Nanos begin, Nanos end, const std::string& arguments) {
    Begin();
    absl::StrAppendFormat(
        &text_, R"({"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"name":%s,"args":{%s}})", rank_,
        tid, Micros(begin), 1e-3 * static_cast<double>(end - begin), Quote(name), arguments);
  }
  // `phase` is s (start) or f (finish, bound to the enclosing slice).
  void Flow(char phase, int tid, Nanos time, const std::string& id) {
    Begin();
    absl::StrAppendFormat(
        &text_,
        R"({"ph":"%c","pid":%d,"tid":%d,"ts":%.3f,"id":%s,"cat":"dependency","name":"after"%s})",
        phase, rank_, tid, Micros(time), Quote(id), phase == 'f' ? R"(,"bp":"e")" : "");
  }
  // `phase` is b, n or e.
  void Async(char phase, Nanos time, const std::string& id, std::string_view name) {
    Begin();
    absl::StrAppendFormat(
        &text_,
        R"({"ph":"%c","pid":%d,"tid":0,"ts":%.3f,"id2":{"local":%s},"cat":"job","name":%s})", phase,
        rank_, Micros(time), Quote(id), Quote(name));
  }

  std::string Take() { return std::move(text_); }

 private:
  void Begin() {
    if (!text_.empty()) text_ += ",\n";
  }
  double Micros(Nanos time) const { return 1e-3 * static_cast<double>(time - origin_); }

  const int rank_;
  const Nanos origin_;
  std::string text_;
};

}  // namespace

void Trace::Add(const OpSpan& span) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ops_.push_back(span);
}

void Trace::Add(const JobSpan& span) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.push_back(span);
}

void Trace::Add(UserSpan span) {
  const std::lock_guard<std::mutex> lock(mutex_);
  user_.push_back(std::move(span));
}

Nanos Trace::First() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Nanos first = std::numeric_limits<Nanos>::max();
  for (const OpSpan& span : ops_) first = std::min(first, span.begin);
  for (const UserSpan& span : user_) first = std::min(first, span.begin);
  for (const JobSpan& span : jobs_) first = std::min(first, span.submitted);
  return first == std::numeric_limits<Nanos>::max() ? 0 : first + offset_;
}

std::string Trace::ToJson(const Plan& plan, Nanos origin) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  EventWriter writer(rank_, origin - offset_);
  writer.Metadata("process_name", 0,
                  absl::StrCat("rank ", rank_, " (node ", plan.topology.grid.node_of(rank_), ")"));
  writer.Origin();
  for (int lane = 0; lane < kTrainerTid; ++lane) {
    writer.Metadata("thread_name", lane, Name(static_cast<Lane>(lane)));
  }
  writer.Metadata("thread_name", kTrainerTid, "trainer");

  std::map<std::pair<std::int64_t, std::int32_t>, const OpSpan*> by_op;
  for (const OpSpan& span : ops_) by_op[{span.step, span.op}] = &span;
  for (const OpSpan& span : ops_) {
    const Op& op = plan.ops[span.op];
    const std::string matrix = TitleOf(plan, op);
    const int tid = static_cast<int>(op.lane);
    const Group& group = plan.groups[op.group];
    const int part = group.PartOf(rank_);
    std::string arguments =
        absl::StrFormat(R"("step":%d,"op":%d,"matrix":%s,"stage":"%s","group":%s,"bytes":%d)",
                        span.step, span.op, Quote(matrix), View(Name(op.stage)),
                        Quote(group.PartName(part)), PayloadBytes(plan, op, rank_));
    if (op.with_next) absl::StrAppend(&arguments, R"(,"with_next":true)");
    if (op.root >= 0) {
      absl::StrAppend(&arguments, ",\"root\":", group.parts[part][op.root]);
    }
    writer.Slice(tid, absl::StrCat(View(Name(op.kind)), " ", matrix), span.begin, span.end,
                 arguments);
    for (const std::int32_t dependency : op.after) {
      const auto found = by_op.find({span.step, dependency});
      if (found == by_op.end() || plan.ops[dependency].lane == op.lane) continue;
      const std::string id = absl::StrCat(rank_, ".", span.step, ".", dependency, ".", span.op);
      writer.Flow('s', static_cast<int>(plan.ops[dependency].lane), found->second->end, id);
      writer.Flow('f', tid, span.begin, id);
    }
  }
  // A job's stages end with the ops that work towards them.
  std::map<std::pair<std::int64_t, std::int32_t>, std::map<Stage, Nanos>> stages;
  for (const OpSpan& span : ops_) {
    const Op& op = plan.ops[span.op];
    for (const std::int32_t m : MatricesOf(plan, op)) {
      Nanos& end = stages[{span.step, m}].try_emplace(op.stage, span.end).first->second;
      end = std::max(end, span.end);
    }
  }
  for (const JobSpan& job : jobs_) {
    const std::string id = absl::StrCat(job.step, ".", job.matrix);
    const std::string& name = plan.matrices[job.matrix].name;
    Nanos last = job.submitted;
    writer.Async('b', job.submitted, id, name);
    for (const auto& [stage, end] : stages[{job.step, job.matrix}]) {
      writer.Async('n', end, id, Name(stage));
      last = std::max(last, end);
    }
    writer.Async('e', last, id, name);
  }
  for (const UserSpan& span : user_) {
    writer.Slice(kTrainerTid, span.name, span.begin, span.end, "");
  }
  return writer.Take();
}

std::string TraceFile(const std::vector<std::string>& events_by_rank) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool first = true;
  for (const std::string& events : events_by_rank) {
    if (events.empty()) continue;
    if (!first) text += ",\n";
    first = false;
    text += events;
  }
  return text + "\n]}\n";
}

}  // namespace weft::runtime
