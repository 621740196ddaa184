// What the C ABI promises of structs of other versions, handles that are none, and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "weft/c/table_v1.h"

extern "C" int weft_layouts_checked(void);

namespace {

using ::testing::HasSubstr;

std::string LastError(const void* handle = nullptr) { return weftGetLastError(handle); }

class CAbi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(weftDeviceCreate(nullptr, &device), weftSuccess) << LastError();
    ASSERT_EQ(weftTransportCreate(nullptr, device, &transport), weftSuccess) << LastError();
    ASSERT_EQ(weftRuntimeCreate(nullptr, device, transport, &runtime), weftSuccess) << LastError();
  }
  void TearDown() override {
    EXPECT_EQ(weftRuntimeDestroy(runtime), weftSuccess) << LastError();
    EXPECT_EQ(weftTransportDestroy(transport), weftSuccess) << LastError();
    EXPECT_EQ(weftDeviceDestroy(device), weftSuccess) << LastError();
  }

  weftMatrixConfig_t Square(const char* name) {
    weftMatrixConfig_t matrix = WEFT_MATRIX_CONFIG_INITIALIZER;
    matrix.name = name;
    matrix.rows = matrix.cols = 4;
    matrix.weight = weight;
    return matrix;
  }

  weftDevice_t device = nullptr;
  weftTransport_t transport = nullptr;
  weftRuntime_t runtime = nullptr;
  float weight[16] = {1, 2, 3};
  float other_weight[16] = {};
};

TEST_F(CAbi, LayoutsAreThoseOfTheHeader) { EXPECT_EQ(weft_layouts_checked(), 1); }

TEST_F(CAbi, VersionIsTheLibrarys) {
  int version = -1;
  ASSERT_EQ(weftGetVersion(&version), weftSuccess);
  EXPECT_GE(version, 100);
  EXPECT_EQ(weftGetVersion(nullptr), weftInvalidArgument);
  EXPECT_EQ(LastError(), "version is a null pointer");
}

TEST_F(CAbi, EveryResultHasWords) {
  for (int result = weftSuccess; result <= weftUnsupported; ++result) {
    EXPECT_NE(std::string(weftGetErrorString(static_cast<weftResult_t>(result))), "");
  }
  for (const int none : {12345, -1}) {
    EXPECT_NE(weftGetErrorString(static_cast<weftResult_t>(none)), nullptr);
  }
}

TEST_F(CAbi, NewerStructsAreTakenWhereTheRestIsZero) {
  struct {
    weftMatrixConfig_t known;
    char unknown[24];
  } newer{Square("newer"), {}};
  newer.known.size = sizeof(newer);
  newer.known.version = 2;
  newer.unknown[23] = 1;
  EXPECT_EQ(weftRuntimeAddMatrix(runtime, &newer.known, nullptr), weftInvalidArgument);
  EXPECT_THAT(LastError(runtime), HasSubstr("sets fields beyond"));
  newer.unknown[23] = 0;
  EXPECT_EQ(weftRuntimeAddMatrix(runtime, &newer.known, nullptr), weftSuccess) << LastError();
}

// Bytes behind the size that an older struct tells are none of its own.
TEST_F(CAbi, OlderStructsKeepDefaultsAndAreReadNoFurther) {
  const weftRuntimeConfig_t whole = WEFT_RUNTIME_CONFIG_INITIALIZER;
  const std::size_t size = offsetof(weftRuntimeConfig_t, strategy);
  std::vector<char> older(size);  // a sanitizer sees a read beyond
  std::memcpy(older.data(), &whole, size);
  std::memcpy(older.data(), &size, sizeof(size));
  weftRuntime_t made = nullptr;
  ASSERT_EQ(weftRuntimeCreate(reinterpret_cast<const weftRuntimeConfig_t*>(older.data()), device,
                              transport, &made),
            weftSuccess)
      << LastError();
  EXPECT_EQ(weftRuntimeDestroy(made), weftSuccess);
}

TEST_F(CAbi, StructsWithoutTheInitializerAreRefused) {
  weftMatrixConfig_t matrix = Square("m");
  matrix.magic = 0;
  EXPECT_EQ(weftRuntimeAddMatrix(runtime, &matrix, nullptr), weftInvalidArgument);
  EXPECT_THAT(LastError(runtime), HasSubstr("weftMatrixConfig_t.magic is wrong"));
  for (const std::size_t size : {std::size_t{0}, std::size_t{15}, std::size_t{1} << 40}) {
    matrix = Square("m");
    matrix.size = size;
    EXPECT_EQ(weftRuntimeAddMatrix(runtime, &matrix, nullptr), weftInvalidArgument);
    EXPECT_THAT(LastError(runtime), HasSubstr("weftMatrixConfig_t.size"));
  }
  weftStepMetrics_t metrics{};
  weftMatrixCounters_t counters{};
  EXPECT_NE(weftRuntimeMetrics(runtime, &metrics), weftSuccess);
  EXPECT_NE(weftRuntimeCounters(runtime, 0, &counters), weftSuccess);
}

TEST_F(CAbi, CallerBugsNameWhatIsWrong) {
  const auto refused = [&](const weftMatrixConfig_t& matrix, const char* sentence) {
    EXPECT_EQ(weftRuntimeAddMatrix(runtime, &matrix, nullptr), weftInvalidArgument) << sentence;
    EXPECT_THAT(LastError(runtime), HasSubstr(sentence));
  };
  EXPECT_EQ(weftRuntimeAddMatrix(runtime, nullptr, nullptr), weftInvalidArgument);
  EXPECT_EQ(LastError(runtime), "weftMatrixConfig_t is a null pointer");
  weftMatrixConfig_t matrix = Square(nullptr);
  refused(matrix, "weftMatrixConfig_t.name is a null pointer");
  matrix = Square("m");
  matrix.layout = 7;
  refused(matrix, "matrix 'm': layout is 7, not one of 0 to 2");
  matrix = Square("m");
  matrix.dtype = -1;
  refused(matrix, "matrix 'm': dtype is -1");
  matrix = Square("m");
  matrix.row_block_count = 2;
  refused(matrix, "row_blocks is a null pointer with a length of 2");
  matrix = Square("m");
  matrix.row_block_count = -1;
  refused(matrix, "the length of row_blocks is -1");
  matrix = Square("m");
  matrix.weight = nullptr;
  refused(matrix, "m");
  weftMuonConfig_t muon = WEFT_MUON_CONFIG_INITIALIZER;
  weftAdamWConfig_t adamw = WEFT_ADAMW_CONFIG_INITIALIZER;
  matrix = Square("m");
  matrix.muon = &muon;
  matrix.adamw = &adamw;
  refused(matrix, "more than one of muon, adamw and custom");
  matrix.adamw = nullptr;
  muon.coefficients = "sextic";
  refused(matrix, "quintic");
  muon.coefficients = "you";
  muon.nesterov = 2;
  refused(matrix, "weftMuonConfig_t.nesterov is 2");
  weftCustomRuleConfig_t custom = WEFT_CUSTOM_RULE_CONFIG_INITIALIZER;
  matrix = Square("m");
  matrix.custom = &custom;
  refused(matrix, "weftCustomRuleConfig_t.apply is a null pointer");
  // Nothing of this has been registered.
  std::int32_t count = -1;
  ASSERT_EQ(weftRuntimeMatrixCount(runtime, &count), weftSuccess);
  EXPECT_EQ(count, 0);
}

TEST_F(CAbi, HandlesThatAreNoneAreTold) {
  weftJob_t job = nullptr;
  weftJobConfig_t config = WEFT_JOB_CONFIG_INITIALIZER;
  EXPECT_EQ(weftRuntimeSubmit(nullptr, &config, &job), weftInvalidArgument);
  EXPECT_EQ(LastError(), "the runtime is a null handle");
  char nothing[64] = {};
  EXPECT_EQ(weftRuntimeStep(reinterpret_cast<weftRuntime_t>(nothing), nullptr),
            weftInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("none of Weft's, or was destroyed"));
  EXPECT_EQ(weftRuntimeStep(reinterpret_cast<weftRuntime_t>(device), nullptr), weftInvalidArgument);
  EXPECT_EQ(LastError(), "the handle is one of a device, not of a runtime");
  weftStream_t stream = nullptr;
  ASSERT_EQ(weftStreamCreate(device, "s", &stream), weftSuccess);
  ASSERT_EQ(weftStreamDestroy(stream), weftSuccess);
  EXPECT_EQ(weftStreamDestroy(stream), weftInvalidArgument);
  EXPECT_EQ(weftRuntimeParameterNeeded(runtime, 0, stream), weftInvalidArgument);
  EXPECT_EQ(weftDeviceDestroy(nullptr), weftSuccess);
}

TEST_F(CAbi, HandlesInUseAreNotDestroyed) {
  EXPECT_EQ(weftDeviceDestroy(device), weftInvalidUsage);
  EXPECT_THAT(LastError(device), HasSubstr("still used by 2 other handles"));
  EXPECT_EQ(weftTransportDestroy(transport), weftInvalidUsage);
  EXPECT_THAT(LastError(transport), HasSubstr("still used by 1 other handle"));
}

TEST_F(CAbi, ErrorsAreKeptByHandleAndByThread) {
  EXPECT_EQ(weftRuntimeWaitForLayer(runtime, 3), weftInvalidUsage) << LastError(runtime);
  const std::string error = LastError(runtime);
  EXPECT_NE(error, "");
  EXPECT_EQ(weftStreamSynchronize(nullptr, 1), weftInvalidArgument);
  EXPECT_EQ(LastError(runtime), error);
  EXPECT_NE(LastError(), error);
  std::thread([] { EXPECT_EQ(LastError(), ""); }).join();
  EXPECT_EQ(LastError(device), "");
}

TEST_F(CAbi, TransportsAreRefusedBeforeAnybodyWaits) {
  weftTransport_t made = nullptr;
  const auto refused = [&](const weftTransportConfig_t& config, const char* sentence) {
    EXPECT_EQ(weftTransportCreate(&config, device, &made), weftInvalidArgument) << sentence;
    EXPECT_THAT(LastError(device), HasSubstr(sentence));
    EXPECT_EQ(made, nullptr);
  };
  weftTransportConfig_t config = WEFT_TRANSPORT_CONFIG_INITIALIZER;
  config.world_size = 2;
  refused(config, "needs a store, or all_gather");
  config.rank = 2;
  refused(config, "rank 2 is not in a world of 2");
  config.rank = 0;
  config.deadline_seconds = -1;
  refused(config, "deadline_seconds");
  config.deadline_seconds = 1;
  config.store = "tcp://nowhere";
  refused(config, "is not tcp://host:port");
  config.all_gather = [](void*, const void*, void*, std::size_t) { return weftSystemError; };
  refused(config, "both all_gather and store");
  config.store = nullptr;
  EXPECT_EQ(weftTransportCreate(&config, device, &made), weftSystemError);
  EXPECT_THAT(LastError(device), HasSubstr("all_gather returned 2 (system error)"));
  // Every rank's blob at every place.
  config.all_gather = [](void*, const void* send, void* recv, std::size_t bytes) {
    std::memcpy(recv, send, bytes);
    std::memcpy(static_cast<char*>(recv) + bytes, send, bytes);
    return weftSuccess;
  };
  refused(config, "the blob of rank 0 at the place of rank 1");
}

TEST_F(CAbi, ADeadRuntimeSaysWhy) {
  const weftMatrixConfig_t matrix = Square("m");
  ASSERT_EQ(weftRuntimeAddMatrix(runtime, &matrix, nullptr), weftSuccess) << LastError();
  char* json = nullptr;
  EXPECT_EQ(weftRuntimePlanJson(runtime, &json), weftInvalidUsage);
  EXPECT_EQ(json, nullptr);
  ASSERT_EQ(weftRuntimeCommit(runtime), weftSuccess) << LastError(runtime);
  EXPECT_EQ(weftTransportGetAsyncError(transport), weftSuccess);
  ASSERT_EQ(weftTransportAbort(transport, "the test is over"), weftSuccess);
  EXPECT_EQ(weftTransportGetAsyncError(transport), weftAborted);
  EXPECT_THAT(LastError(transport), HasSubstr("the test is over"));
}

// Everything that comes too early, and indices that are none, before and after Commit.
TEST_F(CAbi, NothingIsThereTooEarly) {
  weftStream_t stream = nullptr;
  ASSERT_EQ(weftStreamCreate(device, "s", &stream), weftSuccess);
  const weftMatrixConfig_t matrix = Square("m");
  ASSERT_EQ(weftRuntimeAddMatrix(runtime, &matrix, nullptr), weftSuccess);
  for (const bool committed : {false, true}) {
    if (committed) {
      ASSERT_EQ(weftRuntimeCommit(runtime), weftSuccess) << LastError(runtime);
    }
    const auto refused = [&](weftResult_t result, const char* call) {
      EXPECT_NE(result, weftSuccess) << call << " committed: " << committed;
      EXPECT_NE(LastError(runtime), "") << call;
    };
    float* state = nullptr;
    std::int64_t number = 0;
    const void* weights = nullptr;
    weftState_t exported = nullptr;
    weftStepMetrics_t metrics{};
    metrics.size = sizeof(metrics);
    weftMatrixCounters_t counters{};
    counters.size = sizeof(counters);
    weftJobConfig_t job = WEFT_JOB_CONFIG_INITIALIZER;
    job.gradient = weight;
    for (const std::int32_t none : {-1, 1, 1 << 30}) {
      job.matrix = none;
      refused(weftRuntimeSubmit(runtime, &job, nullptr), "Submit");
      refused(weftRuntimeState(runtime, none, &state, &number), "State");
      refused(weftRuntimeParameter(runtime, none, &weights), "Parameter");
      refused(weftRuntimeCounters(runtime, none, &counters), "Counters");
      refused(weftRuntimeParameterNeeded(runtime, none, stream), "ParameterNeeded");
      refused(weftRuntimeParameterReleased(runtime, none, nullptr), "ParameterReleased");
    }
    refused(weftRuntimeMetrics(runtime, &metrics), "Metrics");
    refused(weftRuntimeSetLossScale(runtime, 0), "SetLossScale");
    refused(weftRuntimeLoad(runtime, "/no/such/folder", nullptr), "Load");
    refused(weftRuntimeSave(runtime, nullptr, nullptr), "Save");
    refused(weftRuntimeWriteTrace(runtime, "/no/such/folder/trace"), "WriteTrace");
    refused(weftRuntimeImportState(runtime, "{}", 2, nullptr, 0, nullptr), "ImportState");
    if (!committed) {
      refused(weftRuntimeExportState(runtime, nullptr, &exported), "ExportState");
      refused(weftRuntimeStep(runtime, nullptr), "Step");
    }
    EXPECT_EQ(weftRuntimeAddTraceSpan(runtime, "span", 0, 1), weftSuccess);
    char* text = nullptr;
    ASSERT_EQ(weftRuntimeDecisions(runtime, &text), weftSuccess);
    weftFree(text);
    ASSERT_EQ(weftRuntimeWithoutGradient(runtime, 1, &text), weftSuccess);
    weftFree(text);
  }
  EXPECT_EQ(weftStreamDestroy(stream), weftSuccess);
}

// What a trainer's own checkpoints carry is what a fresh runtime goes on from.
TEST_F(CAbi, ExportedStateIsImported) {
  weftMatrixConfig_t matrix = Square("m");
  ASSERT_EQ(weftRuntimeAddMatrix(runtime, &matrix, nullptr), weftSuccess) << LastError();
  ASSERT_EQ(weftRuntimeCommit(runtime), weftSuccess) << LastError(runtime);
  std::vector<float> gradient(16, 0.5f);
  gradient[5] = -2;
  weftJobConfig_t job = WEFT_JOB_CONFIG_INITIALIZER;
  job.matrix = 0;
  job.gradient = gradient.data();
  ASSERT_EQ(weftRuntimeSubmit(runtime, &job, nullptr), weftSuccess) << LastError(runtime);
  ASSERT_EQ(weftRuntimeStep(runtime, nullptr), weftSuccess) << LastError(runtime);
  ASSERT_EQ(weftRuntimeWaitForStep(runtime), weftSuccess) << LastError(runtime);
  weftCheckpointConfig_t config = WEFT_CHECKPOINT_CONFIG_INITIALIZER;
  config.every_copy = 1;
  weftState_t state = nullptr;
  ASSERT_EQ(weftRuntimeExportState(runtime, &config, &state), weftSuccess) << LastError(runtime);
  const char* description = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(weftStateDescription(state, &description, &bytes), weftSuccess);
  std::int64_t count = 0;
  ASSERT_EQ(weftStateTensorCount(state, &count), weftSuccess);
  ASSERT_EQ(count, 2);  // momentum and weight
  std::vector<weftStateTensor_t> tensors(2);
  for (std::int64_t i = 0; i < count; ++i) {
    tensors[i].size = sizeof(weftStateTensor_t);
    ASSERT_EQ(weftStateTensor(state, i, &tensors[i]), weftSuccess) << LastError(state);
    EXPECT_EQ(tensors[i].data_bytes, 64u) << tensors[i].name;
  }
  EXPECT_EQ(weftStateTensor(state, 2, tensors.data()), weftInvalidArgument);

  weftRuntimeConfig_t options = WEFT_RUNTIME_CONFIG_INITIALIZER;
  options.name = "again";
  weftRuntime_t again = nullptr;
  ASSERT_EQ(weftRuntimeCreate(&options, device, transport, &again), weftSuccess) << LastError();
  matrix.weight = other_weight;
  ASSERT_EQ(weftRuntimeAddMatrix(again, &matrix, nullptr), weftSuccess) << LastError(again);
  ASSERT_EQ(weftRuntimeCommit(again), weftSuccess) << LastError(again);
  ASSERT_EQ(weftRuntimeImportState(again, description, bytes, tensors.data(), count, &config),
            weftSuccess)
      << LastError(again);
  EXPECT_EQ(std::memcmp(weight, other_weight, sizeof(weight)), 0);
  float* momentum[2] = {};
  std::int64_t length[2] = {};
  ASSERT_EQ(weftRuntimeState(runtime, 0, &momentum[0], &length[0]), weftSuccess);
  ASSERT_EQ(weftRuntimeState(again, 0, &momentum[1], &length[1]), weftSuccess);
  ASSERT_EQ(length[0], 16);
  ASSERT_EQ(length[1], 16);
  EXPECT_EQ(std::memcmp(momentum[0], momentum[1], 64), 0);
  EXPECT_NE(momentum[0][5], 0);
  std::int64_t steps = 0;
  ASSERT_EQ(weftRuntimeSteps(again, &steps), weftSuccess);
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(weftStateDestroy(state), weftSuccess);
  EXPECT_EQ(weftRuntimeDestroy(again), weftSuccess);
}

TEST_F(CAbi, TheTableHasTheCalls) {
  EXPECT_EQ(weftRuntime_v1.size, sizeof(weftRuntime_v1_t));
  EXPECT_EQ(weftRuntime_v1.version, 1u);
  EXPECT_EQ(weftRuntime_v1.getVersion, &weftGetVersion);
  EXPECT_EQ(weftRuntime_v1.runtimeWriteTrace, &weftRuntimeWriteTrace);
  // No place is left empty.
  const auto* const calls = reinterpret_cast<void* const*>(&weftRuntime_v1.getVersion);
  const std::size_t count =
      (sizeof(weftRuntime_v1) - offsetof(weftRuntime_v1_t, getVersion)) / sizeof(void*);
  for (std::size_t i = 0; i < count; ++i) EXPECT_NE(calls[i], nullptr) << i;
}

}  // namespace
