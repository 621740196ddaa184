/* Weft's C ABI: what weft.h beside this folder offers, for trainers in C, or in anything that calls
 * C. docs/c-api.md shows how it is used; the C++ headers have the contracts in full, under the
 * names that the calls share with them.
 *
 * Every call that can fail returns a result and leaves one sentence for weftGetLastError(). Wrong
 * arguments are refused and change nothing: null pointers, handles that were destroyed or are of
 * another kind, numbers that no enumeration has. No exception leaves a call. Outputs are written on
 * success alone.
 *
 * Threads: the calls on a runtime, and on jobs' streams, come from one thread at a time, in an
 * order that all ranks share for those marked collective; what is marked "any thread" is safe
 * beside them. A handle is destroyed when nobody uses it; the order is jobs and states any time,
 * runtime, streams, transport, device. A transport or device that is still in use is not destroyed
 * (weftInvalidUsage). */
#ifndef WEFT_C_WEFT_H_
#define WEFT_C_WEFT_H_

#include "weft/c/reports.h"
#include "weft/c/types.h"

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Library: any thread ---- */

/* 10000 * major + 100 * minor + patch, of the library. */
WEFT_API weftResult_t weftGetVersion(int* version);
/* A few words for a result, never NULL; static. */
WEFT_API const char* weftGetErrorString(weftResult_t result);
/* One sentence on the last failed call with this handle, of whatever kind, empty without one; NULL,
 * and handles that are none: this thread's last failed call. Never NULL; valid until this thread
 * asks again. */
WEFT_API const char* weftGetLastError(const void* handle);
/* Frees a text that a call has returned by `char**`; NULL is allowed. */
WEFT_API void weftFree(char* text);

/* ---- Device: any thread ---- */

/* NULL: the defaults, a CPU. weftNotFound where libweft-cuda.so or what it needs is missing. */
WEFT_API weftResult_t weftDeviceCreate(const weftDeviceConfig_t* config, weftDevice_t* device);
WEFT_API weftResult_t weftDeviceDestroy(weftDevice_t device);
/* A stream of the device. Host: a thread. */
WEFT_API weftResult_t weftStreamCreate(weftDevice_t device, const char* name, weftStream_t* stream);
/* The trainer's cudaStream_t (NULL: the legacy default stream), which outlives what is returned;
 * weftInvalidArgument on the host. */
WEFT_API weftResult_t weftStreamAdopt(weftDevice_t device, void* native, const char* name,
                                      weftStream_t* stream);
/* Blocks until what is enqueued has run; weftTimeout. */
WEFT_API weftResult_t weftStreamSynchronize(weftStream_t stream, double timeout_seconds);
WEFT_API weftResult_t weftStreamDestroy(weftStream_t stream);

/* ---- Transport ---- */

/* Collective, blocking until all ranks have come or the deadline. The device outlives it. */
WEFT_API weftResult_t weftTransportCreate(const weftTransportConfig_t* config, weftDevice_t device,
                                          weftTransport_t* transport);
WEFT_API weftResult_t weftTransportDestroy(weftTransport_t transport);
/* Ends every collective of this rank, and its peers', with `cause` (a sentence; NULL: "the trainer
 * asked for it"). Any thread; does not block on a peer. */
WEFT_API weftResult_t weftTransportAbort(weftTransport_t transport, const char* cause);
/* weftSuccess, or the first failure this rank knows of, its own or a peer's. Any thread. */
WEFT_API weftResult_t weftTransportGetAsyncError(weftTransport_t transport);

/* ---- Runtime: setting up ---- */

/* Device and transport outlive it. NULL: the defaults. */
WEFT_API weftResult_t weftRuntimeCreate(const weftRuntimeConfig_t* config, weftDevice_t device,
                                        weftTransport_t transport, weftRuntime_t* runtime);
/* Waits for work in flight until the deadline, then aborts it. */
WEFT_API weftResult_t weftRuntimeDestroy(weftRuntime_t runtime);
/* Before Commit. `matrix` (or NULL) is its index in order of registration. */
WEFT_API weftResult_t weftRuntimeAddMatrix(weftRuntime_t runtime, const weftMatrixConfig_t* config,
                                           int32_t* matrix);
/* Collective, once: compares, plans, connects, warms up. A failure is final. */
WEFT_API weftResult_t weftRuntimeCommit(weftRuntime_t runtime);
/* After Commit: the plan (PlanToJson), and what strategy auto has chosen and why, "" without. */
WEFT_API weftResult_t weftRuntimePlanJson(weftRuntime_t runtime, char** json);
WEFT_API weftResult_t weftRuntimeStrategyReason(weftRuntime_t runtime, char** text);

/* ---- Runtime: steps ---- */

/* Does not block on a peer but where two earlier steps are under way. `job` may be NULL; what is
 * returned there is the caller's to destroy, and may outlive the runtime; NULL with `more`. */
WEFT_API weftResult_t weftRuntimeSubmit(weftRuntime_t runtime, const weftJobConfig_t* config,
                                        weftJob_t* job);
WEFT_API weftResult_t weftRuntimeSetLossScale(weftRuntime_t runtime, double scale);
/* Closes the step. Weights are not written before what `caller` holds now has run; NULL: the
 * caller's reads are done. */
WEFT_API weftResult_t weftRuntimeStep(weftRuntime_t runtime, weftStream_t caller);
/* Issues what can be issued; never needed for what has been. Reports failures. */
WEFT_API weftResult_t weftRuntimeProgress(weftRuntime_t runtime);
/* `stream` waits until the layer's weights of the last closed step are here. Owned: they are here
 * until released. */
WEFT_API weftResult_t weftRuntimeParameterNeeded(weftRuntime_t runtime, int32_t layer,
                                                 weftStream_t stream);
/* Owned: what `stream` holds now is the last that reads the layer in this pass; NULL: it has run.
 */
WEFT_API weftResult_t weftRuntimeParameterReleased(weftRuntime_t runtime, int32_t layer,
                                                   weftStream_t stream);
/* ParameterNeeded on the host: blocks. */
WEFT_API weftResult_t weftRuntimeWaitForLayer(weftRuntime_t runtime, int32_t layer);
/* Blocks until the last closed step is complete on this rank; its outcome. */
WEFT_API weftResult_t weftRuntimeWaitForStep(weftRuntime_t runtime);
/* Steps closed so far. */
WEFT_API weftResult_t weftRuntimeSteps(weftRuntime_t runtime, int64_t* steps);

/* ---- Jobs: any thread ---- */

/* `reached` is 1 or 0; the job's error where it has failed on its way to the stage. */
WEFT_API weftResult_t weftJobReached(weftJob_t job, int32_t stage, int32_t* reached);
/* Blocks; weftInvalidUsage while the work towards the stage is not issued; weftTimeout. */
WEFT_API weftResult_t weftJobWait(weftJob_t job, int32_t stage, double timeout_seconds);
/* Makes a stream wait; weftInvalidUsage as above. */
WEFT_API weftResult_t weftJobWaitOn(weftJob_t job, int32_t stage, weftStream_t stream);
WEFT_API weftResult_t weftJobDestroy(weftJob_t job);

/* ---- Runtime: memory, checkpoints ---- */

/* Device memory of the weight on this rank, NULL when empty. */
WEFT_API weftResult_t weftRuntimeParameter(weftRuntime_t runtime, int32_t matrix,
                                           const void** weight);
/* This rank's optimizer state, fp32 device memory of `count` numbers; none: NULL and 0. */
WEFT_API weftResult_t weftRuntimeState(weftRuntime_t runtime, int32_t matrix, float** state,
                                       int64_t* count);
/* Collective, between steps: into and out of a folder that all ranks see. NULL: the defaults. */
WEFT_API weftResult_t weftRuntimeSave(weftRuntime_t runtime, const char* folder,
                                      const weftCheckpointConfig_t* config);
WEFT_API weftResult_t weftRuntimeLoad(weftRuntime_t runtime, const char* folder,
                                      const weftCheckpointConfig_t* config);
/* The same for a trainer's own checkpoints: ExportState() and ImportState() of runtime.h.
 * Collective (export without data is not). `description` is a JSON text of description_bytes bytes.
 */
WEFT_API weftResult_t weftRuntimeExportState(weftRuntime_t runtime,
                                             const weftCheckpointConfig_t* config,
                                             weftState_t* state);
WEFT_API weftResult_t weftStateDescription(weftState_t state, const char** description,
                                           size_t* description_bytes);
WEFT_API weftResult_t weftStateTensorCount(weftState_t state, int64_t* count);
WEFT_API weftResult_t weftStateTensor(weftState_t state, int64_t index, weftStateTensor_t* tensor);
WEFT_API weftResult_t weftStateDestroy(weftState_t state);
/* `tensors` has tensor_count entries, whose `size` is that of the first. */
WEFT_API weftResult_t weftRuntimeImportState(weftRuntime_t runtime, const char* description,
                                             size_t description_bytes,
                                             const weftStateTensor_t* tensors, int64_t tensor_count,
                                             const weftCheckpointConfig_t* config);

/* ---- Runtime: what happened ---- */

/* weftInvalidUsage before a step is complete. */
WEFT_API weftResult_t weftRuntimeMetrics(weftRuntime_t runtime, weftStepMetrics_t* metrics);
WEFT_API weftResult_t weftRuntimeMatrixCount(weftRuntime_t runtime, int32_t* count);
/* After Commit. */
WEFT_API weftResult_t weftRuntimeCounters(weftRuntime_t runtime, int32_t matrix,
                                          weftMatrixCounters_t* counters);
/* Names, a line each, of the matrices without a gradient in the last `steps` complete steps. */
WEFT_API weftResult_t weftRuntimeWithoutGradient(weftRuntime_t runtime, int64_t steps,
                                                 char** names);
/* The last decisions, a line each. Any thread. */
WEFT_API weftResult_t weftRuntimeDecisions(weftRuntime_t runtime, char** text);
/* A span of the trainer's own work, nanoseconds on the device's clock (weftDeviceNow()). */
WEFT_API weftResult_t weftDeviceNow(weftDevice_t device, int64_t* nanoseconds);
WEFT_API weftResult_t weftRuntimeAddTraceSpan(weftRuntime_t runtime, const char* name,
                                              int64_t begin, int64_t end);
/* Collective: rank 0 writes all ranks' trace for Perfetto. weftInvalidUsage without `trace`. */
WEFT_API weftResult_t weftRuntimeWriteTrace(weftRuntime_t runtime, const char* path);

#ifdef __cplusplus
}
#endif

#endif /* WEFT_C_WEFT_H_ */
