// The recorders of all communicators, found by handles that may be stale: NCCL stops events after
// their communicator has ended, names parents twice, and hands back what another thread's slot
// held. A handle is therefore no pointer but a place and how often that place had been used.
#pragma once

#include <cstdint>
#include <shared_mutex>

#include "plugins/nccl/recorder.h"

namespace weft::nccl_plugin {

inline constexpr std::size_t kMostEvents = (1u << 20) - 1;  // of one communicator

// What NCCL keeps for a communicator (its `event` is none) or an event.
struct Handle {
  std::uint32_t slot = 0;  // below 256
  std::uint32_t use = 0;   // of the slot: 16 bits, never 0
  EventId event;           // 20 bits each
};

void* Encode(const Handle& handle);
Handle Decode(const void* pointer);

// Keeps the recorder of a handle alive while it lives; `recorder` is null where the communicator is
// gone.
struct Access {
  std::shared_lock<std::shared_mutex> lock;
  Recorder* recorder = nullptr;
  Handle handle;
};
Access Enter(const void* pointer);

// Null when 256 communicators are being profiled. `name.number` is filled in.
void* Open(CommunicatorName name, std::size_t capacity, bool kernels, Logger log);

// Ends the recorder: its file is written, everything it held is freed, its handles are stale.
// Blocks while other threads are inside it.
void Close(const void* pointer);

}  // namespace weft::nccl_plugin
