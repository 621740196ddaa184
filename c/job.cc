// Jobs.
#include "base/status_macros.h"
#include "c/config.h"
#include "c/objects.h"
#include "weft/c/weft.h"

using weft::c::Call;
using weft::c::CheckHandle;
using weft::c::CheckPointer;
using weft::c::Kind;

namespace {

absl::StatusOr<weft::Stage> StageOf(int32_t stage) {
  return weft::c::EnumOf(stage, weft::Stage::kDelivered, "stage");
}

}  // namespace

weftResult_t weftJobReached(weftJob_t job, int32_t stage, int32_t* reached) {
  return Call(job, Kind::kJob, [&](weftJob& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(reached, "reached"));
    WEFT_ASSIGN_OR_RETURN(const weft::Stage asked, StageOf(stage));
    WEFT_ASSIGN_OR_RETURN(const bool is, object.job.Reached(asked));
    *reached = is ? 1 : 0;
    return absl::OkStatus();
  });
}

weftResult_t weftJobWait(weftJob_t job, int32_t stage, double timeout_seconds) {
  return Call(job, Kind::kJob, [&](weftJob& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const weft::Stage asked, StageOf(stage));
    WEFT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                          weft::c::DurationOf(timeout_seconds, "timeout_seconds"));
    return object.job.Wait(asked, timeout);
  });
}

weftResult_t weftJobWaitOn(weftJob_t job, int32_t stage, weftStream_t stream) {
  return Call(job, Kind::kJob, [&](weftJob& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckHandle(stream, Kind::kStream));
    WEFT_ASSIGN_OR_RETURN(const weft::Stage asked, StageOf(stage));
    return object.job.WaitOn(*stream->stream, asked);
  });
}

weftResult_t weftJobDestroy(weftJob_t job) { return weft::c::Destroy(job, Kind::kJob); }
