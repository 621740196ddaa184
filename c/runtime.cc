// Runtimes: setting up, and steps.
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "c/config.h"
#include "c/convert.h"
#include "c/objects.h"
#include "weft/c/weft.h"

using weft::c::Call;
using weft::c::CheckHandle;
using weft::c::CheckPointer;
using weft::c::Kind;

namespace {

// A stream of the caller's, or null where that is allowed.
absl::StatusOr<weft::Stream*> OptionalStream(weftStream_t stream) {
  if (stream == nullptr) return nullptr;
  WEFT_RETURN_IF_ERROR(CheckHandle(stream, Kind::kStream));
  return stream->stream.get();
}

absl::Status CheckCommitted(const weftRuntime& runtime) {
  if (runtime.committed) return absl::OkStatus();
  return absl::FailedPreconditionError("there is no plan before weftRuntimeCommit()");
}

// Where the event that a job waits for comes from; null: the gradient is complete.
absl::StatusOr<const weft::Event*> ReadyEvent(weftRuntime& runtime, const weftJobConfig_t& config,
                                              std::unique_ptr<weft::Event>& adopted) {
  if (config.ready_stream != nullptr && config.ready_event != nullptr) {
    return absl::InvalidArgumentError("both ready_stream and ready_event are given");
  }
  if (config.ready_event != nullptr) {
    WEFT_ASSIGN_OR_RETURN(adopted, runtime.device.device->AdoptEvent(config.ready_event));
    return adopted.get();
  }
  WEFT_ASSIGN_OR_RETURN(weft::Stream* const stream, OptionalStream(config.ready_stream));
  if (stream == nullptr) return nullptr;
  stream->Record(*runtime.ready);
  return runtime.ready.get();
}

}  // namespace

weftResult_t weftRuntimeCreate(const weftRuntimeConfig_t* config, weftDevice_t device,
                               weftTransport_t transport, weftRuntime_t* runtime) {
  return Call(device, Kind::kDevice, [&](weftDevice& on) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckHandle(transport, Kind::kTransport));
    WEFT_RETURN_IF_ERROR(CheckPointer(runtime, "runtime"));
    weft::Transport& over = *transport->transport;
    WEFT_ASSIGN_OR_RETURN(const weft::RuntimeOptions options,
                          weft::c::OptionsOf(config, over.size()));
    WEFT_ASSIGN_OR_RETURN(auto made, weft::Runtime::Create(options, *on.device, over));
    *runtime = new weftRuntime(on, *transport, std::move(made));
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeDestroy(weftRuntime_t runtime) {
  return weft::c::Destroy(runtime, Kind::kRuntime);
}

weftResult_t weftRuntimeAddMatrix(weftRuntime_t runtime, const weftMatrixConfig_t* config,
                                  int32_t* matrix) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(weft::MatrixSpec spec, weft::c::SpecOf(config));
    WEFT_ASSIGN_OR_RETURN(const weft::MatrixId id, object.runtime->AddMatrix(std::move(spec)));
    object.matrices = id + 1;
    if (matrix != nullptr) *matrix = id;
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeCommit(weftRuntime_t runtime) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(object.runtime->Commit());
    object.committed = true;
    object.texts = object.runtime->Counters();
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimePlanJson(weftRuntime_t runtime, char** json) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(json, "json"));
    WEFT_RETURN_IF_ERROR(CheckCommitted(object));
    *json = weft::c::CopyOf(weft::PlanToJson(object.runtime->plan()));
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeStrategyReason(weftRuntime_t runtime, char** text) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(text, "text"));
    WEFT_RETURN_IF_ERROR(CheckCommitted(object));
    const auto& report = object.runtime->strategy_report();
    *text = weft::c::CopyOf(report ? report->reason : std::string());
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeSubmit(weftRuntime_t runtime, const weftJobConfig_t* config,
                               weftJob_t* job) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const weftJobConfig_t read,
                          weft::c::ReadConfig(config, weftJobConfig_t WEFT_JOB_CONFIG_INITIALIZER,
                                              "weftJobConfig_t"));
    weft::MatrixJob submitted;
    submitted.matrix = read.matrix;
    submitted.gradient = read.gradient;
    WEFT_ASSIGN_OR_RETURN(submitted.more, weft::c::FlagOf(read.more, "weftJobConfig_t.more"));
    WEFT_ASSIGN_OR_RETURN(const bool has_lr,
                          weft::c::FlagOf(read.has_lr, "weftJobConfig_t.has_lr"));
    WEFT_ASSIGN_OR_RETURN(
        const bool has_weight_decay,
        weft::c::FlagOf(read.has_weight_decay, "weftJobConfig_t.has_weight_decay"));
    if (has_lr) submitted.lr = read.lr;
    if (has_weight_decay) submitted.weight_decay = read.weight_decay;
    std::unique_ptr<weft::Event> adopted;
    WEFT_ASSIGN_OR_RETURN(submitted.ready, ReadyEvent(object, read, adopted));
    WEFT_ASSIGN_OR_RETURN(weft::Job made, object.runtime->Submit(submitted));
    if (job != nullptr) *job = submitted.more ? nullptr : new weftJob(std::move(made));
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeSetLossScale(weftRuntime_t runtime, double scale) {
  return Call(runtime, Kind::kRuntime,
              [&](weftRuntime& object) { return object.runtime->SetLossScale(scale); });
}

weftResult_t weftRuntimeStep(weftRuntime_t runtime, weftStream_t caller) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(weft::Stream* const stream, OptionalStream(caller));
    return object.runtime->Step(stream);
  });
}

weftResult_t weftRuntimeProgress(weftRuntime_t runtime) {
  return Call(runtime, Kind::kRuntime,
              [](weftRuntime& object) { return object.runtime->Progress(); });
}

weftResult_t weftRuntimeParameterNeeded(weftRuntime_t runtime, int32_t layer, weftStream_t stream) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckHandle(stream, Kind::kStream));
    return object.runtime->ParameterNeeded(layer, *stream->stream);
  });
}

weftResult_t weftRuntimeParameterReleased(weftRuntime_t runtime, int32_t layer,
                                          weftStream_t stream) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(weft::Stream* const held, OptionalStream(stream));
    return object.runtime->ParameterReleased(layer, held);
  });
}

weftResult_t weftRuntimeWaitForLayer(weftRuntime_t runtime, int32_t layer) {
  return Call(runtime, Kind::kRuntime,
              [&](weftRuntime& object) { return object.runtime->WaitForLayer(layer); });
}

weftResult_t weftRuntimeWaitForStep(weftRuntime_t runtime) {
  return Call(runtime, Kind::kRuntime,
              [](weftRuntime& object) { return object.runtime->WaitForStep(); });
}

weftResult_t weftRuntimeSteps(weftRuntime_t runtime, int64_t* steps) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(steps, "steps"));
    *steps = object.runtime->steps();
    return absl::OkStatus();
  });
}
