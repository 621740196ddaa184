/* Results, handles and configurations of Weft's C ABI; weft.h beside this file has the calls.
 *
 * A configuration begins with its size, a magic number and a version, which the initializer of its
 * type fills in together with every default:
 *
 *     weftMatrixConfig_t matrix = WEFT_MATRIX_CONFIG_INITIALIZER;
 *
 * Fields are only ever added at the end. A library takes a shorter struct of an older header and
 * fills in the defaults; a longer one of a newer header is taken where all that is unknown is zero
 * and refused otherwise. What a configuration points to is copied before the call returns, but for
 * device memory and the contexts of callbacks. Numbers of enumerations are fixed. */
#ifndef WEFT_C_TYPES_H_
#define WEFT_C_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first eight are those of ncclResult_t. */
typedef enum {
  weftSuccess = 0,
  weftUnhandledCudaError = 1, /* kept for NCCL's callers: Weft names causes by the codes below */
  weftSystemError = 2,        /* a file, a socket or a library of the system */
  weftInternalError = 3,
  weftInvalidArgument = 4,
  weftInvalidUsage = 5, /* not in this state or order */
  weftRemoteError = 6,  /* a peer is gone or unreachable */
  weftInProgress = 7,
  weftTimeout = 8,
  weftNotFound = 9,
  weftAlreadyExists = 10,
  weftOutOfMemory = 11,
  weftDataLoss = 12,
  weftAborted = 13,
  weftUnsupported = 14,
  weftResultOfAnyInt = -2147483647 - 1 /* no result: every int is a value of the type, in C++ too */
} weftResult_t;

typedef struct weftDevice* weftDevice_t;       /* a CPU or a GPU, as one rank uses it */
typedef struct weftTransport* weftTransport_t; /* one rank's way to its peers */
typedef struct weftRuntime* weftRuntime_t;
typedef struct weftStream* weftStream_t; /* a queue of device work */
typedef struct weftJob* weftJob_t;       /* one matrix's update in one step */
typedef struct weftState* weftState_t;   /* exported optimizer state */

enum { WEFT_DEVICE_HOST = 0, WEFT_DEVICE_CUDA = 1 };
enum {
  WEFT_TRANSPORT_AUTO = 0,
  WEFT_TRANSPORT_GLOO = 1,
  WEFT_TRANSPORT_NCCL = 2,
  WEFT_TRANSPORT_FROM_PLUGIN = 3 /* plugin_v1.h; `store` is the plug-in's */
};
enum { WEFT_LAUNCH_AUTO = 0, WEFT_LAUNCH_IMPLICIT = 1, WEFT_LAUNCH_SERIALIZED = 2 };
enum { WEFT_F32 = 0, WEFT_BF16 = 1, WEFT_F16 = 2 };
enum { WEFT_LAYOUT_REPLICATED = 0, WEFT_LAYOUT_SHARDED = 1, WEFT_LAYOUT_OWNED = 2 };
/* This rank's own (Weft takes the mean over the world), or that mean already. */
enum { WEFT_GRADIENT_LOCAL = 0, WEFT_GRADIENT_REDUCED = 1 };
enum { WEFT_SCALE_ORIGINAL = 0, WEFT_SCALE_MATCH_RMS_ADAMW = 1 };
enum {
  WEFT_STRATEGY_AUTO = -1,
  WEFT_STRATEGY_REPLICATED = 0,
  WEFT_STRATEGY_GATHER = 1,
  WEFT_STRATEGY_OWNER = 2,
  WEFT_STRATEGY_NODE_LOCAL = 3,
  WEFT_STRATEGY_LAYERWISE = 4
};
enum { WEFT_MISSING_ERROR = 0, WEFT_MISSING_ZERO = 1, WEFT_MISSING_SKIP = 2 };
enum { WEFT_NON_FINITE_ERROR = 0, WEFT_NON_FINITE_SKIP_STEP = 1, WEFT_NON_FINITE_SKIP_MATRIX = 2 };
enum { WEFT_SOLVER_HEURISTIC = 0, WEFT_SOLVER_MILP = 1 };
enum { WEFT_PASS_THROUGH_NEVER = 0, WEFT_PASS_THROUGH_AUTO = 1, WEFT_PASS_THROUGH_ALWAYS = 2 };
enum { WEFT_WEIGHTS_ALL = 0, WEFT_WEIGHTS_OWNED = 1 };
enum {
  WEFT_STAGE_SUBMITTED = 0,
  WEFT_STAGE_REDUCED = 1,
  WEFT_STAGE_ORTHOGONALIZED = 2,
  WEFT_STAGE_APPLIED = 3,
  WEFT_STAGE_PUBLISHED = 4,
  WEFT_STAGE_DELIVERED = 5
};

#define WEFT_CONFIG_MAGIC 0x77656674u /* "weft" */
#define WEFT_CONFIG_VERSION 1u
#define WEFT_CONFIG_HEADER(type) sizeof(type), WEFT_CONFIG_MAGIC, WEFT_CONFIG_VERSION

typedef struct {
  size_t size;
  uint32_t magic, version;
  int32_t kind;                /* WEFT_DEVICE_* */
  int32_t threads;             /* host: that one product may use */
  int32_t ordinal;             /* CUDA, as cudaSetDevice counts */
  int32_t reserved_processors; /* CUDA: multiprocessors that products leave to collectives */
  uint64_t workspace_bytes;    /* CUDA: for the products of one stream */
} weftDeviceConfig_t;
#define WEFT_DEVICE_CONFIG_INITIALIZER \
  { WEFT_CONFIG_HEADER(weftDeviceConfig_t), WEFT_DEVICE_HOST, 1, 0, 0, (uint64_t)32 << 20 }

/* Both are collective over the ranks of the transport, blocking, called on the thread of
 * weftTransportCreate() during that call alone. Another result than weftSuccess ends the call with
 * it. recv holds world_size blobs of `bytes` bytes, in rank order; send is this rank's. */
typedef weftResult_t (*weftAllGatherFn_t)(void* context, const void* send, void* recv,
                                          size_t bytes);
typedef weftResult_t (*weftBarrierFn_t)(void* context);

/* Ranks meet through the two callbacks, where they are given, or else in `store`: a directory that
 * all ranks share, empty at the start of a run, or "tcp://host:port", where rank 0 listens. One
 * rank alone needs neither. */
typedef struct {
  size_t size;
  uint32_t magic, version;
  int32_t kind; /* WEFT_TRANSPORT_*; auto: nccl for a CUDA device, else gloo */
  int32_t rank;
  int32_t world_size;
  int32_t launch_order; /* nccl: WEFT_LAUNCH_* */
  int32_t max_ctas;     /* nccl: thread blocks of one collective; 0: NCCL's choice */
  int32_t reserved;     /* 0 */
  double deadline_seconds;
  const char* host;  /* address or name of this rank's interface, for gloo and the meeting */
  const char* store; /* or NULL */
  weftAllGatherFn_t all_gather;
  weftBarrierFn_t barrier;
  void* bootstrap_context;
} weftTransportConfig_t;
#define WEFT_TRANSPORT_CONFIG_INITIALIZER                                                         \
  {                                                                                               \
    WEFT_CONFIG_HEADER(weftTransportConfig_t), WEFT_TRANSPORT_AUTO, 0, 1, WEFT_LAUNCH_AUTO, 0, 0, \
        600.0, "127.0.0.1", NULL, NULL, NULL, NULL                                                \
  }

typedef struct {
  size_t size;
  uint32_t magic, version;
  double lr, momentum, weight_decay;
  int32_t nesterov, scale;  /* 0 or 1; WEFT_SCALE_* */
  const char* coefficients; /* "quintic", "polar_express" or "you"; not looked at with triples */
  const double* triples;    /* a, b, c of each iteration: 3 * triple_count numbers, or NULL */
  int64_t triple_count;
  int32_t iterations, operand_type; /* of NS; WEFT_F32, WEFT_BF16 or WEFT_F16 */
  const int32_t* segments;          /* of Gram NS; none: chosen; one 0: plain NS */
  int64_t segment_count;
  double norm_floor;
  int32_t clamp_to_floor, period; /* divide by max(norm, floor); NS in one of `period` steps */
  double gamma, row_norm_eps;     /* of the steps between */
} weftMuonConfig_t;
#define WEFT_MUON_CONFIG_INITIALIZER                                                          \
  {                                                                                           \
    WEFT_CONFIG_HEADER(weftMuonConfig_t), 0.02, 0.95, 0.0, 1, WEFT_SCALE_ORIGINAL, "quintic", \
        NULL, 0, 5, WEFT_F32, NULL, 0, 1e-30, 0, 1, 0.15, 1e-8                                \
  }

typedef struct {
  size_t size;
  uint32_t magic, version;
  double lr, beta1, beta2, eps, weight_decay;
} weftAdamWConfig_t;
#define WEFT_ADAMW_CONFIG_INITIALIZER \
  { WEFT_CONFIG_HEADER(weftAdamWConfig_t), 1e-3, 0.9, 0.999, 1e-8, 0.01 }

/* What a custom rule works with. All memory is the device's, and valid in the work that the rule
 * does or enqueues. */
typedef struct {
  size_t size;
  void* stream;       /* cudaStream_t to enqueue on; NULL on the host, where the call does it */
  const char* matrix; /* valid during the call */
  int64_t step;       /* 0-based */
  int64_t rows, cols;
  int32_t dtype, reserved; /* of gradient and weight */
  const void* gradient;    /* rows x cols, dense; a sum: times gradient_scale and control[1] */
  double gradient_scale;
  float* state; /* state_bytes_per_element * rows * cols bytes, zero before the first step */
  void* weight; /* rows x cols, to be updated in place */
  double lr, weight_decay;
  const float* control; /* two numbers: [0] not 0: leave state and weight as they are; [1] */
} weftRuleContext_t;

/* Host: called on a thread of Weft's, in stream order, and done when it returns. CUDA: called on
 * the thread of weftRuntimeStep() to enqueue, and not to wait. It must not call into Weft. A result
 * other than weftSuccess fails the job on all ranks. */
typedef weftResult_t (*weftRuleFn_t)(void* context, const weftRuleContext_t* rule);
typedef struct {
  size_t size;
  uint32_t magic, version;
  weftRuleFn_t apply;
  void* context;
  int64_t state_bytes_per_element;
  double flops; /* of one run, for the choice of owners */
} weftCustomRuleConfig_t;
#define WEFT_CUSTOM_RULE_CONFIG_INITIALIZER \
  { WEFT_CONFIG_HEADER(weftCustomRuleConfig_t), NULL, NULL, 4, 0.0 }

/* All ranks register the same matrices in the same order, that of use in the forward pass; only
 * `weight` and the custom rule differ. At most one rule is given; none: Muon with its defaults. */
typedef struct {
  size_t size;
  uint32_t magic, version;
  const char* name; /* unique, UTF-8 */
  int64_t rows, cols;
  int32_t dtype, layout, gradient, layer; /* WEFT_F32..., WEFT_LAYOUT_*, WEFT_GRADIENT_*, any */
  /* Device memory, dense rows: whole, or this rank's rows (sharded). Weft writes it; it outlives
   * the runtime. NULL where empty. Owned: the first weight, read in Commit on the owner. */
  void* weight;
  const weftMuonConfig_t* muon;
  const weftAdamWConfig_t* adamw;
  const weftCustomRuleConfig_t* custom;
  const int64_t*
      shard_rows; /* sharded: rows of each rank; none: FSDP2's, ceil(rows / ranks) each */
  int64_t shard_row_count;
  int64_t padding_rows; /* of `rows`, at the end */
  /* Muon: rows, columns, of each of the matrices that are stored as one; see matrix_spec.h. */
  const int64_t* row_blocks;
  int64_t row_block_count;
  const int64_t* column_blocks;
  int64_t column_block_count;
  int64_t row_groups;
} weftMatrixConfig_t;
#define WEFT_MATRIX_CONFIG_INITIALIZER                                                    \
  {                                                                                       \
    WEFT_CONFIG_HEADER(weftMatrixConfig_t), NULL, 0, 0, WEFT_F32, WEFT_LAYOUT_REPLICATED, \
        WEFT_GRADIENT_LOCAL, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, NULL, 0, 1   \
  }

/* Fields as in weft::RuntimeOptions and weft::PlanLimits (runtime.h, plan_limits.h). */
typedef struct {
  size_t size;
  uint32_t magic, version;
  const char* name;              /* runtimes on one transport need different ones */
  const char* topology_json;     /* topology_file.h; NULL: free links and the grid below */
  int32_t nodes, ranks_per_node; /* ranks_per_node 0: world_size / nodes */
  int32_t strategy, strict;      /* WEFT_STRATEGY_*; refuse fallbacks */
  int32_t owner_solver, pass_through;
  double owner_time_limit_seconds;
  int32_t spread_refreshes, missing_gradient, non_finite, trace;
  double max_gradient_norm; /* 0: no clipping */
  double deadline_seconds;
  int64_t state_bytes_cap; /* of one rank; 0: any number */
  const int32_t* owners;   /* of each matrix, -1 for none; NULL: Weft finds them */
  int64_t owner_count;
  int64_t bucket_bytes, exchange_bytes, piece_bytes, fetched_bytes, buffer_bytes;
  int32_t collectives_in_flight, buffers_in_turn, inter_layers_ahead, intra_layers_ahead;
  int32_t keep_through_backward, passes, reduce_each_pass, decision_ring;
} weftRuntimeConfig_t;
#define WEFT_RUNTIME_CONFIG_INITIALIZER                                                           \
  {                                                                                               \
    WEFT_CONFIG_HEADER(weftRuntimeConfig_t), "weft", NULL, 1, 0, WEFT_STRATEGY_OWNER, 0,          \
        WEFT_SOLVER_MILP, WEFT_PASS_THROUGH_AUTO, 5.0, 1, WEFT_MISSING_ERROR,                     \
        WEFT_NON_FINITE_ERROR, 0, 0.0, 600.0, 0, NULL, 0, 256 << 10, 128 << 20, 0, 0, 0, 2, 4, 2, \
        1, 0, 1, 0, 1024                                                                          \
  }

/* The gradient is complete when what `ready_stream` holds now has run, or when `ready_event`
 * (cudaEvent_t) is; with neither it is complete now and copied before Submit returns. Otherwise it
 * stays untouched until the job is reduced. */
typedef struct {
  size_t size;
  uint32_t magic, version;
  int32_t matrix;
  int32_t more;         /* 1: a later micro-step adds to it */
  const void* gradient; /* device memory, dense; NULL: none on this rank */
  weftStream_t ready_stream;
  void* ready_event;
  int32_t has_lr, has_weight_decay; /* 1: set the rule's value from this step on */
  double lr, weight_decay;
} weftJobConfig_t;
#define WEFT_JOB_CONFIG_INITIALIZER \
  { WEFT_CONFIG_HEADER(weftJobConfig_t), -1, 0, NULL, NULL, NULL, 0, 0, 0.0, 0.0 }

typedef struct {
  size_t size;
  uint32_t magic, version;
  int32_t weights;              /* WEFT_WEIGHTS_* */
  int32_t accept_other_options; /* loading */
  int32_t every_copy;           /* exporting: what import needs, rather than each part once */
  int32_t without_data;         /* exporting: the ranges alone */
  int64_t block_bytes;          /* saving: unit of checksums */
} weftCheckpointConfig_t;
#define WEFT_CHECKPOINT_CONFIG_INITIALIZER \
  { WEFT_CONFIG_HEADER(weftCheckpointConfig_t), WEFT_WEIGHTS_ALL, 0, 0, 0, (int64_t)4 << 20 }

#ifdef __cplusplus
}
#endif

#endif /* WEFT_C_TYPES_H_ */
