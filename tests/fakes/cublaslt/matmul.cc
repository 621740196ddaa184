// cublasLtMatmul and what belongs to the library as a whole.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/fakes/cublaslt/problem.h"

struct cublasLtContext {
  int device;
};

namespace weft::fakes::cublaslt {
namespace {

constexpr std::size_t kVersion = CUBLAS_VERSION;
constexpr int kCudartVersion = 13000;

bool Aligned(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

struct Arguments {
  const void* alpha;
  const void* a;
  const void* b;
  const void* beta;
  const void* c;
  void* d;
  void* workspace;
  std::size_t workspace_bytes;
};

bool OnDevice(const Problem& problem) {
  return problem.desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
}

// What is on the device is known only there.
bool MayReadC(const Problem& problem, const Arguments& arguments) {
  if (OnDevice(problem)) return arguments.c != nullptr;
  float beta;
  std::memcpy(&beta, arguments.beta, sizeof beta);
  return beta != 0;
}

cublasStatus_t CheckPointers(const Problem& problem, const Arguments& arguments, const Algo& algo) {
  if (!arguments.alpha || !arguments.beta || !arguments.a || !arguments.b || !arguments.d ||
      (MayReadC(problem, arguments) && !arguments.c)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const void* data :
       {arguments.a, arguments.b, arguments.c, static_cast<const void*>(arguments.d)}) {
    if (!Aligned(data, algo.alignment)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (arguments.c == arguments.d && std::memcmp(&problem.c, &problem.d, sizeof problem.c) != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (arguments.d == arguments.a || arguments.d == arguments.b) {
    return Misuse(CUBLAS_STATUS_INVALID_VALUE, Text(problem) + " writes one of its factors");
  }
  if (algo.workspace > 0 && (!arguments.workspace || arguments.workspace_bytes < algo.workspace ||
                             !Aligned(arguments.workspace, 16))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckAlgo(const Problem& problem, const Algo& algo) {
  if (algo.problem != Choose(problem, 0, algo.alignment).problem) {
    return Misuse(CUBLAS_STATUS_INVALID_VALUE,
                  Text(problem) + " with an algorithm that was chosen for another product");
  }
  if (algo.sm_count_target != problem.desc.sm_count_target) {
    return Misuse(CUBLAS_STATUS_INVALID_VALUE,
                  Text(problem) + " for " + std::to_string(problem.desc.sm_count_target) +
                      " processors with an algorithm that was chosen for " +
                      std::to_string(algo.sm_count_target));
  }
  return CUBLAS_STATUS_SUCCESS;
}

Work MakeWork(const Problem& problem, const Arguments& arguments, const Algo& algo) {
  Work work{.name = Text(problem)};
  AddMatrix(work.accesses, problem.a, arguments.a, false);
  AddMatrix(work.accesses, problem.b, arguments.b, false);
  if (MayReadC(problem, arguments)) AddMatrix(work.accesses, problem.c, arguments.c, false);
  AddMatrix(work.accesses, problem.d, arguments.d, true);
  if (algo.workspace > 0) work.accesses.push_back({arguments.workspace, algo.workspace, true});
  if (OnDevice(problem)) {
    work.accesses.push_back({arguments.alpha, sizeof(float), false});
    work.accesses.push_back({arguments.beta, sizeof(float), false});
  }
  float alpha = 0, beta = 0;
  if (!OnDevice(problem)) {
    std::memcpy(&alpha, arguments.alpha, sizeof alpha);
    std::memcpy(&beta, arguments.beta, sizeof beta);
  }
  work.run = [=]() mutable {
    if (OnDevice(problem)) {
      std::memcpy(&alpha, arguments.alpha, sizeof alpha);
      std::memcpy(&beta, arguments.beta, sizeof beta);
    }
    // A kernel that splits its sums leaves its parts there.
    if (algo.workspace > 0) std::memset(arguments.workspace, 0xff, algo.workspace);
    Multiply(problem, alpha, arguments.a, arguments.b, beta, arguments.c, arguments.d);
  };
  return work;
}

cublasStatus_t CheckHandle(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const int device = Engine::Get().CurrentDevice();
  if (handle->device != device) {
    return Misuse(CUBLAS_STATUS_INVALID_VALUE, "a handle of device " +
                                                   std::to_string(handle->device) +
                                                   " is used on device " + std::to_string(device));
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace weft::fakes::cublaslt

using namespace weft::fakes;
using namespace weft::fakes::cublaslt;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const int device = Engine::Get().CurrentDevice();
  if (Engine::Get().StickyError(device) != 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *lightHandle = new cublasLtContext{device};
  Engine::Get().AddObject(*lightHandle, "cublasLt handle of device " + std::to_string(device));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!Engine::Get().RemoveObject(lightHandle)) {
    return Misuse(CUBLAS_STATUS_NOT_INITIALIZED, "destroys a handle for the second time");
  }
  delete lightHandle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  if (const cublasStatus_t status = CheckHandle(lightHandle)) return status;
  const Preference* const wanted = Of(preference);
  if (wanted == nullptr || requestedAlgoCount < 1 || heuristicResultsArray == nullptr ||
      returnAlgoCount == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returnAlgoCount = 0;
  Problem problem;
  const cublasStatus_t status = ReadProblem(operationDesc, Adesc, Bdesc, Cdesc, Ddesc, &problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Algo algo = Choose(problem, wanted->max_workspace,
                           *std::min_element(wanted->alignment, wanted->alignment + 4));
  cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[0];
  result = {};
  static_assert(sizeof algo <= sizeof result.algo);
  std::memcpy(&result.algo, &algo, sizeof algo);
  result.workspaceSize = algo.workspace;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  *returnAlgoCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc,
                              const void* B, cublasLtMatrixLayout_t Bdesc, const void* beta,
                              const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspaceSizeInBytes, cudaStream_t stream) {
  if (const cublasStatus_t status = CheckHandle(lightHandle)) return status;
  Problem problem;
  cublasStatus_t status = ReadProblem(computeDesc, Adesc, Bdesc, Cdesc, Ddesc, &problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Algo chosen;
  if (algo == nullptr) {
    chosen = Choose(problem, workspaceSizeInBytes, 1);
  } else if (Of(algo) == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  } else {
    chosen = *Of(algo);
    status = CheckAlgo(problem, chosen);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const Arguments arguments{alpha, A, B, beta, C, D, workspace, workspaceSizeInBytes};
  status = CheckPointers(problem, arguments, chosen);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const int error = Engine::Get().Enqueue(stream, MakeWork(problem, arguments, chosen));
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

size_t cublasLtGetVersion() { return kVersion; }

size_t cublasLtGetCudartVersion() { return kCudartVersion; }

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  if (value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (type) {
    case MAJOR_VERSION:
      *value = kVersion / 10000;
      return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION:
      *value = kVersion / 100 % 100;
      return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL:
      *value = kVersion % 100;
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
#define WEFT_STATUS(name) \
  case name:              \
    return #name
  switch (status) {
    WEFT_STATUS(CUBLAS_STATUS_SUCCESS);
    WEFT_STATUS(CUBLAS_STATUS_NOT_INITIALIZED);
    WEFT_STATUS(CUBLAS_STATUS_ALLOC_FAILED);
    WEFT_STATUS(CUBLAS_STATUS_INVALID_VALUE);
    WEFT_STATUS(CUBLAS_STATUS_ARCH_MISMATCH);
    WEFT_STATUS(CUBLAS_STATUS_MAPPING_ERROR);
    WEFT_STATUS(CUBLAS_STATUS_EXECUTION_FAILED);
    WEFT_STATUS(CUBLAS_STATUS_INTERNAL_ERROR);
    WEFT_STATUS(CUBLAS_STATUS_NOT_SUPPORTED);
    WEFT_STATUS(CUBLAS_STATUS_LICENSE_ERROR);
  }
#undef WEFT_STATUS
  return "no cublasStatus_t";
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

// The fake logs nothing.
cublasStatus_t cublasLtLoggerSetCallback(cublasLtLoggerCallback_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtLoggerSetFile(FILE*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtLoggerOpenFile(const char*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtLoggerSetLevel(int) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtLoggerSetMask(int) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtLoggerForceDisable() { return CUBLAS_STATUS_SUCCESS; }
