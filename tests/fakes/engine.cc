#include "tests/fakes/engine.h"

#include <utility>

#include "tests/fakes/call.h"

namespace weft::fakes {

void AddRows(std::vector<Access>& accesses, const void* data, std::int64_t rows,
             std::size_t row_bytes, std::size_t stride, bool write) {
  const auto* first = static_cast<const std::byte*>(data);
  if (rows > 1 && row_bytes == stride) {
    accesses.push_back({first, static_cast<std::size_t>(rows) * row_bytes, write});
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    accesses.push_back({first + static_cast<std::size_t>(row) * stride, row_bytes, write});
  }
}

void SetStreamName(StreamHandle stream, std::string name) {
  Call call("naming a stream");
  if (Stream* found = call.FindStream(stream)) found->name = std::move(name);
}

Engine& Engine::Get() {
  static Engine engine;
  return engine;
}

int Engine::CurrentDevice() { return Thread::Current().device; }

int Engine::SetCurrentDevice(int device) {
  Call call("cudaSetDevice", Call::Kind::kQuiet);
  if (device < 0 || device >= static_cast<int>(call.world().devices.size())) return kInvalidDevice;
  // The thread takes along what it knows.
  call.world().JoinHost(device, *call.device().host);
  call.thread().device = device;
  return call.world().Sticky(device);
}

int Engine::DeviceOf(StreamHandle stream) {
  Call call("asking for a stream's device");
  const Stream* found = call.world().FindStream(stream, call.thread().device);
  return found == nullptr ? -1 : found->device;
}

std::string Engine::NameOf(StreamHandle stream) {
  Call call("asking for a stream's name");
  const Stream* found = call.world().FindStream(stream, call.thread().device);
  return found == nullptr ? "no stream" : found->Label();
}

int Engine::Enqueue(StreamHandle stream, Work work) {
  const std::string name = "'" + work.name + "'";
  Call call(name.c_str());
  if (call.error() != 0) return call.error();
  Stream* found = call.FindStream(stream);
  if (found == nullptr) return kInvalidResourceHandle;
  if (const int error = call.CheckCurrent(*found)) return error;
  return call.Enqueue(found, std::move(work));
}

bool Engine::IsCapturing(StreamHandle stream) {
  Call call("asking for a capture");
  const Stream* found = call.world().FindStream(stream, call.thread().device);
  return found != nullptr && found->capture != nullptr;
}

bool Engine::BlockHost(const std::string& why, const std::function<bool()>& done) {
  Call call(why.c_str());
  return call.error() == 0 && call.Block("", done) == 0;
}

void Engine::Notify() {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.Changed();
}

void Engine::Report(FaultKind kind, std::string text) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.Report(kind, std::move(text));
}

std::uint64_t Engine::Random() {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  return world.random();
}

int Engine::StickyError(int device) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  return world.Sticky(device);
}

bool Engine::Killed(int device) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  return world.devices.at(device).killed;
}

int Engine::CommunicatorFailure(int device, const std::string& communicator, std::int64_t n) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  const auto found = world.communicator_failures.find({device, communicator});
  return found == world.communicator_failures.end() || n < found->second.first
             ? 0
             : found->second.second;
}

void Engine::AddObject(const void* object, std::string what) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.objects[object] = std::move(what);
}

bool Engine::RemoveObject(const void* object) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  return world.objects.erase(object) > 0;
}

void Engine::OnReset(std::function<void()> drop) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.on_reset.push_back(std::move(drop));
}

}  // namespace weft::fakes
