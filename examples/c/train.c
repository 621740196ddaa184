/* The C ABI in one file: one rank trains one matrix. docs/c-api.md shows it; with more ranks, only
 * the transport's configuration changes. */
#include <stdio.h>

#include "weft/c/weft.h"

enum { kSize = 64, kSteps = 3 };

static int Failed(const char* what, const void* handle) {
  fprintf(stderr, "%s: %s\n", what, weftGetLastError(handle));
  return 1;
}

static int Train(weftRuntime_t runtime, float* weight) {
  weftMatrixConfig_t matrix = WEFT_MATRIX_CONFIG_INITIALIZER;
  weftMuonConfig_t muon = WEFT_MUON_CONFIG_INITIALIZER;
  muon.lr = 0.02;
  matrix.name = "blk.0.wq";
  matrix.rows = matrix.cols = kSize;
  matrix.weight = weight;
  matrix.muon = &muon;
  int32_t id = 0;
  if (weftRuntimeAddMatrix(runtime, &matrix, &id) != weftSuccess) return Failed("add", runtime);
  if (weftRuntimeCommit(runtime) != weftSuccess) return Failed("commit", runtime);

  static float gradient[kSize * kSize];
  for (int step = 0; step < kSteps; ++step) {
    /* The weights of the last step have arrived; forward and backward. */
    if (weftRuntimeWaitForLayer(runtime, 0) != weftSuccess) return Failed("wait", runtime);
    for (int i = 0; i < kSize * kSize; ++i) gradient[i] = weight[i];
    weftJobConfig_t job = WEFT_JOB_CONFIG_INITIALIZER;
    job.matrix = id;
    job.gradient = gradient;
    if (weftRuntimeSubmit(runtime, &job, NULL) != weftSuccess) return Failed("submit", runtime);
    if (weftRuntimeStep(runtime, NULL) != weftSuccess) return Failed("step", runtime);
  }
  if (weftRuntimeWaitForStep(runtime) != weftSuccess) return Failed("wait", runtime);
  weftMatrixCounters_t counters = {.size = sizeof(counters)};
  if (weftRuntimeCounters(runtime, id, &counters) != weftSuccess) {
    return Failed("counters", runtime);
  }
  printf("%s: %lld updates, path %s\n", counters.name, (long long)counters.updates, counters.path);
  return counters.updates == kSteps ? 0 : 1;
}

int main(void) {
  static float weight[kSize * kSize]; /* outlives the runtime */
  for (int i = 0; i < kSize * kSize; ++i) weight[i] = (float)(i % 7) - 3;
  weftDevice_t device = NULL;
  weftTransport_t transport = NULL;
  weftRuntime_t runtime = NULL;
  if (weftDeviceCreate(NULL, &device) != weftSuccess) return Failed("device", NULL);
  if (weftTransportCreate(NULL, device, &transport) != weftSuccess) {
    return Failed("transport", device);
  }
  if (weftRuntimeCreate(NULL, device, transport, &runtime) != weftSuccess) {
    return Failed("runtime", device);
  }
  const int failed = Train(runtime, weight);
  weftRuntimeDestroy(runtime);
  weftTransportDestroy(transport);
  weftDeviceDestroy(device);
  return failed;
}
