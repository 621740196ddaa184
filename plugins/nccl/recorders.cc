#include "plugins/nccl/recorders.h"

#include <memory>
#include <mutex>
#include <utility>

namespace weft::nccl_plugin {
namespace {

struct Slot {
  Recorder* recorder = nullptr;
  std::uint32_t use = 1;
};

// Neither has a destructor that does anything: NCCL may never unload the library, and calls it
// until the process ends.
constinit std::shared_mutex slots_mutex;
constinit Slot slots[256];
constinit std::int32_t communicators = 0;

}  // namespace

void* Encode(const Handle& handle) {
  const std::uint64_t bits = std::uint64_t{handle.event.index} | std::uint64_t{handle.slot} << 20 |
                             std::uint64_t{handle.use} << 28 |
                             std::uint64_t{handle.event.use} << 44;
  // NCCL only keeps it. NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(bits));
}

Handle Decode(const void* pointer) {
  const auto bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer));
  return {.slot = static_cast<std::uint32_t>(bits >> 20 & 0xff),
          .use = static_cast<std::uint32_t>(bits >> 28 & 0xffff),
          .event = {.index = static_cast<std::uint32_t>(bits & 0xfffff),
                    .use = static_cast<std::uint32_t>(bits >> 44)}};
}

Access Enter(const void* pointer) {
  if (pointer == nullptr) return {};
  Access access{.lock = std::shared_lock(slots_mutex), .handle = Decode(pointer)};
  const Slot& slot = slots[access.handle.slot];
  if (slot.use == access.handle.use) access.recorder = slot.recorder;
  return access;
}

void* Open(CommunicatorName name, std::size_t capacity, bool kernels, Logger log) {
  const std::lock_guard<std::shared_mutex> lock(slots_mutex);
  for (std::uint32_t i = 0; i < std::size(slots); ++i) {
    if (slots[i].recorder != nullptr) continue;
    name.number = communicators;
    slots[i].recorder = new Recorder(std::move(name), capacity, kernels, log);
    ++communicators;
    return Encode({.slot = i, .use = slots[i].use, .event = {}});
  }
  return nullptr;
}

void Close(const void* pointer) {
  std::unique_ptr<Recorder> recorder;
  {
    const std::lock_guard<std::shared_mutex> lock(slots_mutex);
    const Handle handle = Decode(pointer);
    Slot& slot = slots[handle.slot];
    if (slot.use != handle.use) return;
    recorder.reset(std::exchange(slot.recorder, nullptr));
    slot.use = slot.use % 0xffff + 1;
  }
  if (recorder != nullptr) recorder->Finish();
}

}  // namespace weft::nccl_plugin
