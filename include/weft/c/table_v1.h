/* The calls of weft.h as a table, for a trainer that opens the library at run time:
 *
 *     const weftRuntime_v1_t* weft = dlsym(dlopen("libweft.so.0", RTLD_NOW), WEFT_RUNTIME_V1);
 *
 * One constant per major version of the ABI. Calls are only ever added, at the end: `size` says how
 * many the library has. Contracts are those of the calls of the same names. */
#ifndef WEFT_C_TABLE_V1_H_
#define WEFT_C_TABLE_V1_H_

#include "weft/c/weft.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_RUNTIME_V1 "weftRuntime_v1"

typedef struct {
  size_t size;      /* of the library's table, in bytes */
  uint32_t magic;   /* WEFT_CONFIG_MAGIC */
  uint32_t version; /* 1 */
  weftResult_t (*getVersion)(int* version);
  const char* (*getErrorString)(weftResult_t result);
  const char* (*getLastError)(const void* handle);
  void (*free)(char* text);
  weftResult_t (*deviceCreate)(const weftDeviceConfig_t* config, weftDevice_t* device);
  weftResult_t (*deviceDestroy)(weftDevice_t device);
  weftResult_t (*streamCreate)(weftDevice_t device, const char* name, weftStream_t* stream);
  weftResult_t (*streamAdopt)(weftDevice_t device, void* native, const char* name,
                              weftStream_t* stream);
  weftResult_t (*streamSynchronize)(weftStream_t stream, double timeout_seconds);
  weftResult_t (*streamDestroy)(weftStream_t stream);
  weftResult_t (*transportCreate)(const weftTransportConfig_t* config, weftDevice_t device,
                                  weftTransport_t* transport);
  weftResult_t (*transportDestroy)(weftTransport_t transport);
  weftResult_t (*transportAbort)(weftTransport_t transport, const char* cause);
  weftResult_t (*transportGetAsyncError)(weftTransport_t transport);
  weftResult_t (*runtimeCreate)(const weftRuntimeConfig_t* config, weftDevice_t device,
                                weftTransport_t transport, weftRuntime_t* runtime);
  weftResult_t (*runtimeDestroy)(weftRuntime_t runtime);
  weftResult_t (*runtimeAddMatrix)(weftRuntime_t runtime, const weftMatrixConfig_t* config,
                                   int32_t* matrix);
  weftResult_t (*runtimeCommit)(weftRuntime_t runtime);
  weftResult_t (*runtimePlanJson)(weftRuntime_t runtime, char** json);
  weftResult_t (*runtimeStrategyReason)(weftRuntime_t runtime, char** text);
  weftResult_t (*runtimeSubmit)(weftRuntime_t runtime, const weftJobConfig_t* config,
                                weftJob_t* job);
  weftResult_t (*runtimeSetLossScale)(weftRuntime_t runtime, double scale);
  weftResult_t (*runtimeStep)(weftRuntime_t runtime, weftStream_t caller);
  weftResult_t (*runtimeProgress)(weftRuntime_t runtime);
  weftResult_t (*runtimeParameterNeeded)(weftRuntime_t runtime, int32_t layer, weftStream_t stream);
  weftResult_t (*runtimeParameterReleased)(weftRuntime_t runtime, int32_t layer,
                                           weftStream_t stream);
  weftResult_t (*runtimeWaitForLayer)(weftRuntime_t runtime, int32_t layer);
  weftResult_t (*runtimeWaitForStep)(weftRuntime_t runtime);
  weftResult_t (*runtimeSteps)(weftRuntime_t runtime, int64_t* steps);
  weftResult_t (*jobReached)(weftJob_t job, int32_t stage, int32_t* reached);
  weftResult_t (*jobWait)(weftJob_t job, int32_t stage, double timeout_seconds);
  weftResult_t (*jobWaitOn)(weftJob_t job, int32_t stage, weftStream_t stream);
  weftResult_t (*jobDestroy)(weftJob_t job);
  weftResult_t (*runtimeParameter)(weftRuntime_t runtime, int32_t matrix, const void** weight);
  weftResult_t (*runtimeState)(weftRuntime_t runtime, int32_t matrix, float** state,
                               int64_t* count);
  weftResult_t (*runtimeSave)(weftRuntime_t runtime, const char* folder,
                              const weftCheckpointConfig_t* config);
  weftResult_t (*runtimeLoad)(weftRuntime_t runtime, const char* folder,
                              const weftCheckpointConfig_t* config);
  weftResult_t (*runtimeExportState)(weftRuntime_t runtime, const weftCheckpointConfig_t* config,
                                     weftState_t* state);
  weftResult_t (*stateDescription)(weftState_t state, const char** description,
                                   size_t* description_bytes);
  weftResult_t (*stateTensorCount)(weftState_t state, int64_t* count);
  weftResult_t (*stateTensor)(weftState_t state, int64_t index, weftStateTensor_t* tensor);
  weftResult_t (*stateDestroy)(weftState_t state);
  weftResult_t (*runtimeImportState)(weftRuntime_t runtime, const char* description,
                                     size_t description_bytes, const weftStateTensor_t* tensors,
                                     int64_t tensor_count, const weftCheckpointConfig_t* config);
  weftResult_t (*runtimeMetrics)(weftRuntime_t runtime, weftStepMetrics_t* metrics);
  weftResult_t (*runtimeMatrixCount)(weftRuntime_t runtime, int32_t* count);
  weftResult_t (*runtimeCounters)(weftRuntime_t runtime, int32_t matrix,
                                  weftMatrixCounters_t* counters);
  weftResult_t (*runtimeWithoutGradient)(weftRuntime_t runtime, int64_t steps, char** names);
  weftResult_t (*runtimeDecisions)(weftRuntime_t runtime, char** text);
  weftResult_t (*deviceNow)(weftDevice_t device, int64_t* nanoseconds);
  weftResult_t (*runtimeAddTraceSpan)(weftRuntime_t runtime, const char* name, int64_t begin,
                                      int64_t end);
  weftResult_t (*runtimeWriteTrace)(weftRuntime_t runtime, const char* path);
} weftRuntime_v1_t;

extern WEFT_API const weftRuntime_v1_t weftRuntime_v1;

#ifdef __cplusplus
}
#endif

#endif /* WEFT_C_TABLE_V1_H_ */
