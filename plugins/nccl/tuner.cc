// The tuner that NCCL loads: NCCL_TUNER_PLUGIN=weft. It looks at Broadcast and Reduce, which NCCL
// runs on rings only, and there at nothing but protocol and channels.
#include <atomic>
#include <cstddef>
#include <new>
#include <string>

#include "plugins/nccl/process.h"
#include "plugins/nccl/tuner_abi.h"
#include "plugins/nccl/tuner_config.h"
#include "plugins/nccl/tuner_policy.h"

namespace weft::nccl_plugin {
namespace {

struct Tuner {
  TunerConfig config;
  Communicator communicator;
};

void* Create(const Communicator& communicator, Logger log) {
  static std::atomic<bool> told{false};
  auto* const tuner = new Tuner{.config = {}, .communicator = communicator};
  std::string error;
  if (!ReadTunerConfig(Environment("WEFT_NCCL_TUNER"), &tuner->config, &error) && log != nullptr &&
      !told.exchange(true)) {
    log(kLogWarn, kLogInit | kLogTuning, __FILE__, __LINE__,
        "WEFT_NCCL_TUNER is not understood, so Weft's tuner has no opinion: %s", error.c_str());
  }
  return tuner;
}

int InitV5(void** context, std::uint64_t, std::size_t ranks, std::size_t nodes, Logger log,
           NvlDomainsV5* domains, TunerConstantsV5* constants) {
  if (context == nullptr) return kSuccess;
  *context = nullptr;
  return Guarded([&] { *context = Create(WithConstants(ranks, nodes, domains, constants), log); });
}

int InitV4(std::size_t ranks, std::size_t nodes, Logger log, void** context) {
  if (context == nullptr) return kSuccess;
  *context = nullptr;
  return Guarded([&] { *context = Create(WithDefaultConstants(ranks, nodes), log); });
}

// `registered` is left out on purpose: it is a fact of one rank.
int Tune(void* context, int function, std::size_t bytes, int pipe_ops, float** table,
         int algorithms, int protocols, int /*registered*/, int* channels) {
  constexpr int kMostProtocols = 16;  // more is no table of NCCL's
  if (context == nullptr || table == nullptr || algorithms <= kRing) return kSuccess;
  if (protocols < kProtocols || protocols > kMostProtocols) return kSuccess;
  return Guarded([&] {
    const auto& tuner = *static_cast<const Tuner*>(context);
    float* const ring = reinterpret_cast<float*>(table) + std::ptrdiff_t{kRing} * protocols;
    const Advice advice = Advise(tuner.config, tuner.communicator, function, bytes, pipe_ops, ring);
    Prefer(advice.protocol, ring, protocols);
    if (advice.channels > 0 && channels != nullptr) *channels = advice.channels;
  });
}

int Finalize(void* context) {
  delete static_cast<Tuner*>(context);
  return kSuccess;
}

}  // namespace
}  // namespace weft::nccl_plugin

extern "C" {

__attribute__((visibility("default"))) extern const weft::nccl_plugin::TunerV5 ncclTunerPlugin_v5;
__attribute__((visibility("default"))) extern const weft::nccl_plugin::TunerV4 ncclTunerPlugin_v4;

const weft::nccl_plugin::TunerV5 ncclTunerPlugin_v5 = {
    "Weft", weft::nccl_plugin::InitV5, weft::nccl_plugin::Tune, weft::nccl_plugin::Finalize};
const weft::nccl_plugin::TunerV4 ncclTunerPlugin_v4 = {
    "Weft", weft::nccl_plugin::InitV4, weft::nccl_plugin::Tune, weft::nccl_plugin::Finalize};

}  // extern "C"
