// What happened in a runtime.
#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "c/config.h"
#include "c/objects.h"
#include "weft/c/weft.h"

using weft::c::Call;
using weft::c::CheckPointer;
using weft::c::Kind;

weftResult_t weftRuntimeMetrics(weftRuntime_t runtime, weftStepMetrics_t* metrics) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(metrics, "weftStepMetrics_t"));
    WEFT_ASSIGN_OR_RETURN(const weft::StepMetrics from, object.runtime->Metrics());
    weftStepMetrics_t report{};
    report.step = from.step;
    report.jobs = from.jobs;
    report.skipped_matrices = from.skipped_matrices;
    report.optimizer_seconds = from.optimizer_seconds;
    report.exposed_communication_seconds = from.exposed_communication_seconds;
    report.ns_seconds = from.ns_seconds;
    report.compute_seconds = from.compute_seconds;
    static_assert(sizeof(report.lane_seconds) == weft::kLaneCount * sizeof(double));
    std::copy(from.lane_seconds.begin(), from.lane_seconds.end(), report.lane_seconds);
    std::copy(from.lane_bytes.begin(), from.lane_bytes.end(), report.lane_bytes);
    report.gradient_norm = from.gradient_norm;
    report.clip_factor = from.clip_factor;
    report.host_microseconds_per_job = from.host_microseconds_per_job;
    return weft::c::WriteReport(report, metrics, "weftStepMetrics_t");
  });
}

weftResult_t weftRuntimeMatrixCount(weftRuntime_t runtime, int32_t* count) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(count, "count"));
    *count = object.matrices;
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeCounters(weftRuntime_t runtime, int32_t matrix,
                                 weftMatrixCounters_t* counters) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    if (!object.committed) {
      return absl::FailedPreconditionError("there are no counters before weftRuntimeCommit()");
    }
    if (matrix < 0 || matrix >= static_cast<int32_t>(object.texts.size())) {
      return absl::NotFoundError(absl::StrCat("there is no matrix ", matrix));
    }
    const weft::MatrixCounters from = object.runtime->Counters()[matrix];
    const weft::MatrixCounters& texts = object.texts[matrix];
    weftMatrixCounters_t report{};
    report.name = texts.name.c_str();
    report.path = texts.path.c_str();
    report.fallback = texts.fallback.c_str();
    report.ns_runs = from.ns_runs;
    report.row_norms = from.row_norms;
    report.updates = from.updates;
    report.collectives = from.collectives;
    report.bytes = from.bytes;
    report.last_gradient_step = from.last_gradient_step;
    return weft::c::WriteReport(report, counters, "weftMatrixCounters_t");
  });
}

weftResult_t weftRuntimeWithoutGradient(weftRuntime_t runtime, int64_t steps, char** names) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(names, "names"));
    std::string lines;
    for (const std::string& name : object.runtime->WithoutGradient(steps)) {
      absl::StrAppend(&lines, name, "\n");
    }
    *names = weft::c::CopyOf(lines);
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeDecisions(weftRuntime_t runtime, char** text) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(text, "text"));
    *text = weft::c::CopyOf(object.runtime->DescribeDecisions());
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeAddTraceSpan(weftRuntime_t runtime, const char* name, int64_t begin,
                                     int64_t end) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(std::string text, weft::c::TextOf(name, "name"));
    object.runtime->AddTraceSpan(std::move(text), begin, end);
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeWriteTrace(weftRuntime_t runtime, const char* path) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::string text, weft::c::TextOf(path, "path"));
    return object.runtime->WriteTrace(text);
  });
}
