// Compiled as C++17: the headers of the C ABI alone, and every initializer.
#include "weft/c/table_v1.h"

namespace {

[[maybe_unused]] const weftDeviceConfig_t kDevice = WEFT_DEVICE_CONFIG_INITIALIZER;
[[maybe_unused]] const weftTransportConfig_t kTransport = WEFT_TRANSPORT_CONFIG_INITIALIZER;
[[maybe_unused]] const weftMuonConfig_t kMuon = WEFT_MUON_CONFIG_INITIALIZER;
[[maybe_unused]] const weftAdamWConfig_t kAdamW = WEFT_ADAMW_CONFIG_INITIALIZER;
[[maybe_unused]] const weftCustomRuleConfig_t kRule = WEFT_CUSTOM_RULE_CONFIG_INITIALIZER;
[[maybe_unused]] const weftMatrixConfig_t kMatrix = WEFT_MATRIX_CONFIG_INITIALIZER;
[[maybe_unused]] const weftRuntimeConfig_t kRuntime = WEFT_RUNTIME_CONFIG_INITIALIZER;
[[maybe_unused]] const weftJobConfig_t kJob = WEFT_JOB_CONFIG_INITIALIZER;
[[maybe_unused]] const weftCheckpointConfig_t kCheckpoint = WEFT_CHECKPOINT_CONFIG_INITIALIZER;

}  // namespace
