/* What Weft's C ABI tells of steps, matrices and state. Before a call the caller sets `size` to
 * sizeof of the struct; no more than that is written, so that a library may be newer than the
 * header, or older: then what it does not know is zero. */
#ifndef WEFT_C_REPORTS_H_
#define WEFT_C_REPORTS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's view of the last complete step; weft::StepMetrics in metrics.h says what each is. By
 * lane: compute, intra, inter, caller. */
typedef struct {
  size_t size;
  int64_t step, jobs, skipped_matrices;
  double optimizer_seconds, exposed_communication_seconds, ns_seconds, compute_seconds;
  double lane_seconds[4];
  int64_t lane_bytes[4];
  double gradient_norm, clip_factor, host_microseconds_per_job;
} weftStepMetrics_t;

/* What really ran for one matrix on this rank since Commit. The texts are the runtime's and valid
 * until it is destroyed. */
typedef struct {
  size_t size;
  const char* name;
  const char* path;     /* as planned */
  const char* fallback; /* why it is not the strategy's own; empty if it is */
  int64_t ns_runs, row_norms, updates, collectives, bytes;
  int64_t last_gradient_step; /* -1: none yet */
} weftMatrixCounters_t;

/* Rows of a tensor of the logical model; weft::StateTensor in checkpoint.h. Out of a weftState_t it
 * is valid until that is destroyed; into weftRuntimeImportState() it is copied. */
typedef struct {
  size_t size;
  const char* name;
  const char* dtype;    /* as in safetensors */
  const int64_t* shape; /* shape_count numbers */
  int64_t shape_count;
  int64_t first_row, rows;
  const void* data; /* host memory, data_bytes bytes */
  uint64_t data_bytes;
} weftStateTensor_t;

#ifdef __cplusplus
}
#endif

#endif /* WEFT_C_REPORTS_H_ */
