// Memory, copies and fills.
#include <cstring>
#include <utility>

#include "tests/fakes/cudart/common.h"

namespace weft::fakes {
namespace {

constexpr std::size_t kTotalBytes = std::size_t{80} << 30;

// Of a world that has failed already.
void Ignore(FaultKind, const std::string&) {}

bool FailsNow(Device& device) {
  return device.fail_allocation >= 0 && device.fail_allocation-- == 0;
}

int Allocate(const char* name, void** data, std::size_t bytes, MemoryKind kind) {
  Call call(name, Call::Kind::kUnsafe);
  if (call.error() != 0) return call.error();
  if (data == nullptr) return kInvalidValue;
  const int device = call.thread().device;
  if (const int error = call.BlockUntilIdle(device)) return error;
  if (FailsNow(call.device()) || bytes > kTotalBytes) return kMemoryAllocation;
  if (bytes == 0) {
    *data = nullptr;
    return kSuccess;
  }
  *data = call.world().memory.Allocate(kind, device, bytes).data;
  return kSuccess;
}

// The hosts of the memory's device, and whoever calls.
Clock Knows(Call& call, const Allocation& allocation) {
  Clock known = *call.device().host;
  if (allocation.kind == MemoryKind::kDevice) {
    known.Join(*call.world().devices[allocation.device].host);
    return known;
  }
  for (const Device& device : call.world().devices) known.Join(*device.host);
  return known;
}

// In a failed world memory is given back all the same.
int Free(const char* name, void* data, bool device_memory, bool registered) {
  Call call(name, Call::Kind::kUnsafe);
  if (data == nullptr) return call.error();
  Memory& memory = call.world().memory;
  Allocation* allocation = memory.Begins(data);
  if (allocation == nullptr || (allocation->kind == MemoryKind::kDevice) != device_memory ||
      (allocation->kind == MemoryKind::kRegistered) != registered) {
    call.Misuse("of memory that it did not allocate, or that was freed before");
    return kInvalidValue;
  }
  if (call.error() >= kCaptureUnsupported) return call.error();
  int error = call.error() != 0 ? call.error() : call.world().Sticky(allocation->device);
  // Before the wait, which tells nothing: what is not known to have ended by now may be in use.
  const Clock known = Knows(call, *allocation);
  if (error == 0) {
    error = call.BlockUntilIdle(device_memory ? allocation->device : call.thread().device);
  }
  // Between hosts that free the same memory there is a second one by now.
  allocation = memory.Begins(data);
  if (allocation == nullptr) return kInvalidValue;
  const std::string by = "a host of device " + std::to_string(call.thread().device);
  memory.Free(*allocation, known, by,
              error != 0 ? Memory::Report(Ignore) : call.world().Reporter());
  return error;
}

int AllocateAsync(void** data, std::size_t bytes, cudaStream_t handle) {
  Call call("cudaMallocAsync");
  if (call.error() != 0) return call.error();
  if (data == nullptr) return kInvalidValue;
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (stream->capture != nullptr) {
    call.Misuse("in a capture is not modelled");
    return kNotSupported;
  }
  World& world = call.world();
  if (FailsNow(world.devices[stream->device]) || bytes > kTotalBytes) return kMemoryAllocation;
  if (bytes == 0) {
    *data = nullptr;
    return kSuccess;
  }
  *data = world.memory.Allocate(MemoryKind::kDevice, stream->device, bytes).data;
  auto node = world.MakeNode(Node::Kind::kRecord, stream, Work{"allocation", {}, {}, {}});
  node->effect = [&world, start = *data](const Site& site, const Clock&) {
    if (Allocation* allocation = world.memory.Begins(start)) world.memory.Begin(*allocation, site);
  };
  world.Enqueue(std::move(node));
  return kSuccess;
}

int FreeAsync(void* data, cudaStream_t handle) {
  Call call("cudaFreeAsync");
  if (data == nullptr) return call.error();
  World& world = call.world();
  Allocation* allocation = world.memory.Begins(data);
  if (allocation == nullptr || allocation->kind != MemoryKind::kDevice) {
    call.Misuse("of memory that it did not allocate, or that was freed before");
    return kInvalidValue;
  }
  if (call.error() != 0) {
    world.memory.Free(*allocation, {}, "", Ignore);
    return call.error();
  }
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (stream->capture != nullptr) {
    call.Misuse("in a capture is not modelled");
    return kNotSupported;
  }
  auto node = world.MakeNode(Node::Kind::kRecord, stream, Work{"free", {}, {}, {}});
  node->effect = [&world, data](const Site& site, const Clock& clock) {
    if (Allocation* freed = world.memory.Begins(data)) {
      world.memory.Free(*freed, clock, *site.label, world.Reporter());
    } else {
      world.Report(FaultKind::kUseAfterFree, *site.label + " frees what is already freed");
    }
  };
  world.Enqueue(std::move(node));
  return kSuccess;
}

// Pageable memory of the host is read when the call is made, and written before it returns.
int Copy(const char* name, void* to, const void* from, std::size_t bytes, cudaStream_t handle,
         bool wait) {
  Call call(name, wait ? Call::Kind::kUnsafe : Call::Kind::kPlain);
  if (call.error() != 0) return call.error();
  if (bytes == 0) return kSuccess;
  if (to == nullptr || from == nullptr) return kInvalidValue;
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  const bool pageable_from = call.world().memory.Find(from) == nullptr;
  const bool pageable_to = call.world().memory.Find(to) == nullptr;
  Work work{"copy of " + std::to_string(bytes) + " bytes", {}, {}, {}};
  work.copy = true;
  if (!pageable_from) work.accesses.push_back({from, bytes, false});
  if (!pageable_to) work.accesses.push_back({to, bytes, true});
  if (pageable_from) {
    auto staged = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(staged->data(), from, bytes);
    work.run = [=] { std::memcpy(to, staged->data(), bytes); };
  } else {
    work.run = [=] { std::memmove(to, from, bytes); };
  }
  const bool captured = stream->capture != nullptr;
  if (captured && (pageable_to || wait)) {
    return Invalidate(call.world(), *stream->capture, kCaptureUnsupported, name);
  }
  if (const int error = call.Enqueue(stream, std::move(work))) return error;
  if (!wait && !pageable_to) return kSuccess;
  const std::shared_ptr<Mark> mark = stream->tail;
  if (const int error = call.Block(" on " + stream->Label(), [&] { return mark->done; })) {
    return error;
  }
  call.world().JoinHost(stream->device, mark->clock);
  call.world().JoinHost(call.thread().device, mark->clock);
  return kSuccess;
}

int Fill(const char* name, void* data, int value, std::size_t bytes, cudaStream_t handle,
         bool wait) {
  Call call(name, wait ? Call::Kind::kUnsafe : Call::Kind::kPlain);
  if (call.error() != 0) return call.error();
  if (bytes == 0) return kSuccess;
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (const int error = call.CheckCurrent(*stream)) return error;
  if (call.world().memory.Find(data) == nullptr) {
    call.Misuse("of memory that no call allocated");
    return kInvalidValue;
  }
  Work work{"fill of " + std::to_string(bytes) + " bytes",
            {{data, bytes, true}},
            [=] { std::memset(data, value, bytes); },
            {}};
  if (const int error = call.Enqueue(stream, std::move(work))) return error;
  if (!wait) return kSuccess;
  const std::shared_ptr<Mark> mark = stream->tail;
  if (const int error = call.Block(" on " + stream->Label(), [&] { return mark->done; })) {
    return error;
  }
  call.world().JoinHost(stream->device, mark->clock);
  return kSuccess;
}

}  // namespace
}  // namespace weft::fakes

using weft::fakes::Call;
using weft::fakes::MemoryKind;
using weft::fakes::Return;

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return Return(weft::fakes::Allocate("cudaMalloc", data, bytes, MemoryKind::kDevice));
}
cudaError_t cudaFree(void* data) {
  return Return(weft::fakes::Free("cudaFree", data, true, false));
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  return Return(weft::fakes::Allocate("cudaHostAlloc", data, bytes, MemoryKind::kPinned));
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return Return(weft::fakes::Allocate("cudaMallocHost", data, bytes, MemoryKind::kPinned));
}
cudaError_t cudaFreeHost(void* data) {
  return Return(weft::fakes::Free("cudaFreeHost", data, false, false));
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned int) {
  Call call("cudaHostRegister", Call::Kind::kUnsafe);
  if (call.error() != 0) return Return(call.error());
  if (data == nullptr || bytes == 0) return Return(cudaErrorInvalidValue);
  if (call.world().memory.Find(data) != nullptr) {
    return Return(cudaErrorHostMemoryAlreadyRegistered);
  }
  call.world().memory.Register(data, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  return Return(weft::fakes::Free("cudaHostUnregister", data, false, true));
}
cudaError_t cudaHostGetDevicePointer(void** device_data, void* data, unsigned int) {
  *device_data = data;
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  return Return(weft::fakes::AllocateAsync(data, bytes, stream));
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t, cudaStream_t stream) {
  return Return(weft::fakes::AllocateAsync(data, bytes, stream));
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return Return(weft::fakes::FreeAsync(data, stream));
}
// A pool is nothing but its device.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  Call call("cudaDeviceGetDefaultMemPool");
  if (call.error() != 0) return Return(call.error());
  if (device < 0 || device >= static_cast<int>(call.world().devices.size())) {
    return Return(cudaErrorInvalidDevice);
  }
  *pool = reinterpret_cast<cudaMemPool_t>(&call.world().devices[device]);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, enum cudaMemPoolAttr, void* value) {
  return Return(value == nullptr ? cudaErrorInvalidValue : cudaSuccess);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Call call("cudaMemGetInfo");
  if (call.error() != 0) return Return(call.error());
  *total = weft::fakes::kTotalBytes;
  *free = *total - call.world().memory.BytesOf(call.thread().device);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* data) {
  Call call("cudaPointerGetAttributes");
  if (call.error() != 0) return Return(call.error());
  *attributes = {};
  const weft::fakes::Allocation* found = call.world().memory.Find(data);
  if (found == nullptr || found->freed) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = const_cast<void*>(data);
    return cudaSuccess;
  }
  const bool device = found->kind == MemoryKind::kDevice;
  attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = device ? found->device : 0;
  attributes->devicePointer = const_cast<void*>(data);
  attributes->hostPointer = device ? nullptr : const_cast<void*>(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream) {
  return Return(weft::fakes::Copy("cudaMemcpyAsync", to, from, bytes, stream, false));
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind) {
  return Return(weft::fakes::Copy("cudaMemcpy", to, from, bytes, nullptr, true));
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return Return(weft::fakes::Fill("cudaMemsetAsync", data, value, bytes, stream, false));
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return Return(weft::fakes::Fill("cudaMemset", data, value, bytes, nullptr, true));
}

}  // extern "C"
