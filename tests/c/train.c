/* Trains a small model over Weft's C ABI on several processes and holds the weights of every rank
 * against the serial reference of model.c.
 *
 *   c_train linked|LIBRARY RANKS MEETING SEED
 *
 * linked: the library this program is linked with, else one that is opened by its path. MEETING:
 * callbacks (all-gather and barrier over memory that the processes share), directory, tcp (rank 0
 * listens), or plugin (the transport that WEFT_TRANSPORT_PLUGIN names). Exits with 0 when all ranks
 * agree with the reference. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ftw.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c/model.h"
#include "weft/c/table_v1.h"

enum { kSteps = 6, kMostRanks = 8, kSlot = 4096 };
static const double kTolerance = 5e-6; /* fp32 NS against float64, after kSteps steps */

/* What a trainer has anyway: here memory that all processes share, and a barrier in it. */
typedef struct {
  pthread_barrier_t barrier;
  int gathers;
  int updates; /* of one matrix, by all ranks */
  char slots[kMostRanks][kSlot];
} Shared;

typedef struct {
  Shared* shared;
  int rank, ranks;
} Rank;

static const weftRuntime_v1_t* weft;

#define CHECK(handle, call)                                                                      \
  do {                                                                                           \
    const weftResult_t result_ = (call);                                                         \
    if (result_ != weftSuccess) {                                                                \
      fprintf(stderr, "rank %d: %s: %s: %s\n", self->rank, #call, weft->getErrorString(result_), \
              weft->getLastError(handle));                                                       \
      return 1;                                                                                  \
    }                                                                                            \
  } while (0)
#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      fprintf(stderr, "rank %d: line %d: %s\n", self->rank, __LINE__, #condition); \
      return 1;                                                                    \
    }                                                                              \
  } while (0)

static weftResult_t AllGather(void* context, const void* send, void* recv, size_t bytes) {
  Rank* const self = context;
  if (bytes > kSlot) return weftInvalidArgument;
  memcpy(self->shared->slots[self->rank], send, bytes);
  pthread_barrier_wait(&self->shared->barrier);
  for (int r = 0; r < self->ranks; ++r) {
    memcpy((char*)recv + (size_t)r * bytes, self->shared->slots[r], bytes);
  }
  if (self->rank == 0) ++self->shared->gathers;
  pthread_barrier_wait(&self->shared->barrier);
  return weftSuccess;
}

static weftResult_t Barrier(void* context) {
  pthread_barrier_wait(&((Rank*)context)->shared->barrier);
  return weftSuccess;
}

/* Plain gradient descent. */
static weftResult_t Descend(void* context, const weftRuleContext_t* rule) {
  ++*(int*)context;
  if (rule->stream != NULL || rule->dtype != WEFT_F32) return weftInvalidArgument;
  if (rule->control[0] != 0) return weftSuccess;
  const float* const gradient = rule->gradient;
  float* const weight = rule->weight;
  for (int64_t i = 0; i < rule->rows * rule->cols; ++i) {
    weight[i] -= (float)(kRates.lr_scale * rule->gradient_scale * rule->control[1] * gradient[i]);
  }
  return weftSuccess;
}

/* The four matrices in the order of use, as Weft sees them. */
typedef struct {
  float first[kFirst], second[kSecond], bias[kBias], scale[kBias];
} Floats;

static int AddMatrices(Rank* self, weftRuntime_t runtime, Floats* weights, int* rule_runs) {
  weftMuonConfig_t muon = WEFT_MUON_CONFIG_INITIALIZER;
  muon.lr = kRates.lr_first;
  muon.momentum = kRates.momentum;
  weftMatrixConfig_t matrix = WEFT_MATRIX_CONFIG_INITIALIZER;
  matrix.name = "first";
  matrix.rows = kHidden;
  matrix.cols = kInputs;
  matrix.weight = weights->first;
  matrix.muon = &muon;
  CHECK(runtime, weft->runtimeAddMatrix(runtime, &matrix, NULL));

  const double triples[3] = {3.4445, -4.7750, 2.0315};
  const int32_t plain = 0;
  muon.lr = 1; /* set anew by every job */
  muon.weight_decay = kRates.decay_second;
  muon.triples = triples;
  muon.triple_count = 1;
  muon.segments = &plain;
  muon.segment_count = 1;
  muon.period = kPeriod;
  muon.gamma = kRates.gamma;
  muon.row_norm_eps = kRates.row_norm_eps;
  matrix.name = "second";
  matrix.rows = kOutputs;
  matrix.cols = kHidden;
  matrix.layer = 1;
  matrix.weight = weights->second;
  CHECK(runtime, weft->runtimeAddMatrix(runtime, &matrix, NULL));

  weftAdamWConfig_t adamw = WEFT_ADAMW_CONFIG_INITIALIZER;
  adamw.lr = kRates.lr_bias;
  adamw.beta1 = kRates.beta1;
  adamw.beta2 = kRates.beta2;
  adamw.eps = kRates.eps;
  adamw.weight_decay = kRates.decay_bias;
  matrix.name = "bias";
  matrix.rows = 1;
  matrix.cols = kBias;
  matrix.weight = weights->bias;
  matrix.muon = NULL;
  matrix.adamw = &adamw;
  CHECK(runtime, weft->runtimeAddMatrix(runtime, &matrix, NULL));

  weftCustomRuleConfig_t custom = WEFT_CUSTOM_RULE_CONFIG_INITIALIZER;
  custom.apply = Descend;
  custom.context = rule_runs;
  matrix.name = "scale";
  matrix.weight = weights->scale;
  matrix.adamw = NULL;
  matrix.custom = &custom;
  int32_t id = -1;
  CHECK(runtime, weft->runtimeAddMatrix(runtime, &matrix, &id));
  EXPECT(id == 3);
  return 0;
}

static void Narrow(const Model* from, Floats* to) {
  for (size_t i = 0; i < sizeof(Model) / sizeof(double); ++i) {
    ((float*)to)[i] = (float)((const double*)from)[i];
  }
}

static int TrainStep(Rank* self, weftRuntime_t runtime, weftStream_t stream, uint64_t seed,
                     int step, const Floats* weights) {
  static Model wide, gradient;
  static Floats narrow;
  for (int32_t layer = 0; layer < 2; ++layer) {
    CHECK(runtime, weft->runtimeParameterNeeded(runtime, layer, stream));
  }
  CHECK(stream, weft->streamSynchronize(stream, 60));
  for (size_t i = 0; i < sizeof(Model) / sizeof(double); ++i) {
    ((double*)&wide)[i] = ((const float*)weights)[i];
  }
  Gradient(&wide, seed, self->rank, step, &gradient);
  Narrow(&gradient, &narrow);
  const float* const gradients[4] = {narrow.first, narrow.second, narrow.bias, narrow.scale};
  weftJob_t jobs[4];
  for (int32_t m = 3; m >= 0; --m) { /* as a backward pass yields them */
    weftJobConfig_t job = WEFT_JOB_CONFIG_INITIALIZER;
    job.matrix = m;
    job.gradient = gradients[m];
    job.ready_stream = m % 2 == 0 ? stream : NULL;
    job.has_lr = m == 1;
    job.lr = kRates.lr_second;
    CHECK(runtime, weft->runtimeSubmit(runtime, &job, &jobs[m]));
  }
  CHECK(runtime, weft->runtimeStep(runtime, stream));
  for (int m = 0; m < 4; ++m) {
    int32_t reached = 0;
    CHECK(jobs[m], weft->jobWait(jobs[m], WEFT_STAGE_DELIVERED, 60));
    CHECK(jobs[m], weft->jobReached(jobs[m], WEFT_STAGE_APPLIED, &reached));
    EXPECT(reached == 1);
    CHECK(jobs[m], weft->jobDestroy(jobs[m]));
  }
  return 0;
}

static int CompareWithReference(Rank* self, uint64_t seed, const Floats* weights) {
  static Model reference;
  TrainReference(seed, self->ranks, kSteps, &reference);
  const double errors[4] = {RelativeError(weights->first, reference.first, kFirst),
                            RelativeError(weights->second, reference.second, kSecond),
                            RelativeError(weights->bias, reference.bias, kBias),
                            RelativeError(weights->scale, reference.scale, kBias)};
  printf("rank %d: relative errors %.2g %.2g %.2g %.2g\n", self->rank, errors[0], errors[1],
         errors[2], errors[3]);
  for (int m = 0; m < 4; ++m) EXPECT(errors[m] < kTolerance);
  return 0;
}

/* What ran, by what the runtime counts. */
static int CheckReports(Rank* self, weftRuntime_t runtime) {
  int64_t steps = 0;
  CHECK(runtime, weft->runtimeSteps(runtime, &steps));
  EXPECT(steps == kSteps);
  weftMatrixCounters_t counters = {.size = sizeof(counters)};
  CHECK(runtime, weft->runtimeCounters(runtime, 1, &counters));
  EXPECT(strcmp(counters.name, "second") == 0 && counters.path[0] != '\0');
  EXPECT(counters.last_gradient_step == kSteps - 1);
  __atomic_fetch_add(&self->shared->updates, (int)counters.updates, __ATOMIC_SEQ_CST);
  EXPECT(counters.ns_runs == 0 || counters.ns_runs == kSteps / kPeriod);
  weftStepMetrics_t metrics = {.size = sizeof(metrics)};
  CHECK(runtime, weft->runtimeMetrics(runtime, &metrics));
  EXPECT(metrics.step == kSteps - 1 && metrics.jobs == 4 && metrics.gradient_norm > 0);
  char* json = NULL;
  CHECK(runtime, weft->runtimePlanJson(runtime, &json));
  EXPECT(strstr(json, "\"matrices\"") != NULL && strstr(json, "second") != NULL);
  weft->free(json);
  return 0;
}

static int Train(Rank* self, const char* meeting, const char* store, uint64_t seed) {
  static Model initial;
  static Floats weights;
  int rule_runs = 0;
  InitModel(seed, &initial);
  Narrow(&initial, &weights);
  weftDevice_t device = NULL;
  CHECK(NULL, weft->deviceCreate(NULL, &device));
  weftStream_t stream = NULL;
  CHECK(device, weft->streamCreate(device, "trainer", &stream));
  weftTransportConfig_t transport_config = WEFT_TRANSPORT_CONFIG_INITIALIZER;
  transport_config.rank = self->rank;
  transport_config.world_size = self->ranks;
  transport_config.deadline_seconds = 120;
  if (strcmp(meeting, "callbacks") == 0) {
    transport_config.all_gather = AllGather;
    transport_config.barrier = Barrier;
    transport_config.bootstrap_context = self;
  } else {
    transport_config.store = store;
    if (strcmp(meeting, "plugin") == 0) transport_config.kind = WEFT_TRANSPORT_FROM_PLUGIN;
  }
  weftTransport_t transport = NULL;
  CHECK(device, weft->transportCreate(&transport_config, device, &transport));
  weftRuntimeConfig_t runtime_config = WEFT_RUNTIME_CONFIG_INITIALIZER;
  runtime_config.nodes = self->ranks % 2 == 0 ? 2 : 1;
  runtime_config.pass_through = WEFT_PASS_THROUGH_NEVER;
  runtime_config.spread_refreshes = 0;
  weftRuntime_t runtime = NULL;
  CHECK(device, weft->runtimeCreate(&runtime_config, device, transport, &runtime));
  if (AddMatrices(self, runtime, &weights, &rule_runs) != 0) return 1;
  CHECK(runtime, weft->runtimeCommit(runtime));
  for (int step = 0; step < kSteps; ++step) {
    if (TrainStep(self, runtime, stream, seed, step, &weights) != 0) return 1;
  }
  CHECK(runtime, weft->runtimeWaitForStep(runtime));
  if (CheckReports(self, runtime) != 0) return 1;
  EXPECT(weft->transportDestroy(transport) == weftInvalidUsage); /* still in use */
  CHECK(runtime, weft->runtimeDestroy(runtime));
  CHECK(transport, weft->transportDestroy(transport));
  CHECK(stream, weft->streamDestroy(stream));
  CHECK(device, weft->deviceDestroy(device));
  return CompareWithReference(self, seed, &weights);
}

static const weftRuntime_v1_t* Table(const char* library) {
  if (strcmp(library, "linked") == 0) {
#ifdef WEFT_LINKED
    return &weftRuntime_v1;
#else
    return NULL;
#endif
  }
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return NULL;
  }
  return dlsym(opened, WEFT_RUNTIME_V1);
}

/* A folder or an address of this run's own. */
static int MakeStore(const char* meeting, char* store, size_t bytes) {
  if (strcmp(meeting, "tcp") != 0) {
    snprintf(store, bytes, "/tmp/weft-c-XXXXXX");
    return mkdtemp(store) != NULL;
  }
  /* A port that is free now. */
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t size = sizeof(address);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int found = bind(fd, (struct sockaddr*)&address, size) == 0 &&
                    getsockname(fd, (struct sockaddr*)&address, &size) == 0;
  close(fd);
  snprintf(store, bytes, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
  return found;
}

static int Remove(const char* path, const struct stat* info, int flag, struct FTW* where) {
  (void)info, (void)flag, (void)where;
  return remove(path);
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int ranks = atoi(argv[2]);
  const uint64_t seed = strtoull(argv[4], NULL, 10);
  if (ranks < 1 || ranks > kMostRanks) return 2;
  printf("seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  char store[64];
  if (!MakeStore(argv[3], store, sizeof(store))) return 2;
  Shared* const shared =
      mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, (unsigned)ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    weft = Table(argv[1]);
    if (weft == NULL || weft->magic != WEFT_CONFIG_MAGIC || weft->size < sizeof(*weft)) exit(3);
    Rank self = {shared, rank, ranks};
    exit(Train(&self, argv[3], store, seed));
  }
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++failed;
  }
  if (strcmp(argv[3], "callbacks") == 0 && shared->gathers == 0) ++failed;
  /* Strategy owner: once in the world in every step. */
  if (shared->updates != kSteps) {
    fprintf(stderr, "%d updates in %d steps\n", shared->updates, (int)kSteps);
    ++failed;
  }
  if (strcmp(argv[3], "tcp") != 0) nftw(store, Remove, 8, FTW_DEPTH | FTW_PHYS);
  return failed == 0 ? 0 : 1;
}
