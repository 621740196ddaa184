// The frame of every call of the fakes: the lock, the thread, and the errors that come before all
// others.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "tests/fakes/capture.h"
#include "tests/fakes/world.h"

namespace weft::fakes {

class Call {
 public:
  enum class Kind {
    kPlain,
    kUnsafe,  // may not be made while a stream is captured
    kPoll,    // asks for progress, and is unsafe
    kQuiet,   // may stand between polls: of the thread alone
  };
  explicit Call(const char* name, Kind kind = Kind::kPlain)
      : thread_(Thread::Current()), world_(World::Get()), name_(name), lock_(world_.mutex) {
    if (thread_.engine) {
      Misuse("in a host function");
      error_ = kNotPermitted;
      return;
    }
    if (kind != Kind::kPoll && kind != Kind::kQuiet) thread_.failed_polls = 0;
    error_ = world_.Sticky(thread_.device);
    if (error_ == 0 && (kind == Kind::kUnsafe || kind == Kind::kPoll))
      error_ = UnsafeCall(world_, thread_, name);
  }

  World& world() { return world_; }
  Thread& thread() { return thread_; }
  Device& device() { return world_.devices[thread_.device]; }
  std::unique_lock<std::mutex>& lock() { return lock_; }
  // Of the thread's device or of the rules of captures.
  int error() const { return error_; }

  void Misuse(const std::string& what) {
    world_.Report(FaultKind::kMisuse, std::string(name_) + " " + what);
  }
  // Null, and a misuse, where there is none.
  Stream* FindStream(const void* handle) {
    Stream* stream = world_.FindStream(handle, thread_.device);
    if (stream == nullptr) Misuse("of a stream that does not exist");
    return stream;
  }
  Event* FindEvent(const void* handle) {
    const auto found = world_.event_of.find(handle);
    if (found != world_.event_of.end() && !found->second->destroyed) return found->second;
    Misuse("of an event that does not exist");
    return nullptr;
  }
  // What is enqueued on the stream needs its device to be the current one.
  int CheckCurrent(const Stream& stream) {
    if (stream.device == thread_.device) return kSuccess;
    Misuse("on " + stream.Label() + " while device " + std::to_string(thread_.device) +
           " is current");
    return kInvalidResourceHandle;
  }
  // At the end of the stream, or of its capture.
  int Enqueue(Stream* stream, Work work, bool host_function = false) {
    if (const int sticky = world_.Sticky(stream->device)) return sticky;
    if (stream->capture != nullptr) return CaptureWork(stream, std::move(work), host_function);
    if (const int implicit = CheckImplicit(*stream)) return implicit;
    auto node = world_.MakeNode(Node::Kind::kWork, stream, std::move(work));
    node->host_function = host_function;
    world_.Enqueue(std::move(node));
    return kSuccess;
  }
  // The default stream would wait for a stream that is captured.
  int CheckImplicit(const Stream& stream) {
    if (!stream.legacy) return kSuccess;
    for (const std::shared_ptr<Capture>& capture : world_.captures) {
      for (const Capture::Branch& branch : capture->branches) {
        if (branch.stream->device == stream.device && branch.stream->blocking()) {
          return Invalidate(world_, *capture, kCaptureImplicit, name_);
        }
      }
    }
    return kSuccess;
  }
  // An error where a deadlock or a failed device ended the wait.
  int Block(const std::string& why, const std::function<bool()>& done) {
    if (world_.Block(lock_, std::string(name_) + why, done)) return kSuccess;
    return world_.Sticky(thread_.device);
  }
  // For all that has been enqueued on the device, as hardware may.
  int BlockUntilIdle(int device) {
    return Block(", for all work of device " + std::to_string(device),
                 [&, device] { return world_.devices[device].unfinished == 0; });
  }
  // A thread that asks again and again lets the engine run.
  void Polled(bool done) {
    const bool blocked = thread_.IsBlocked();
    thread_.failed_polls = done ? 0 : thread_.failed_polls + 1;
    if (thread_.registered > 0 && (done || thread_.IsBlocked() != blocked)) world_.Changed();
  }

 private:
  Thread& thread_;
  World& world_;
  const char* name_;
  std::unique_lock<std::mutex> lock_;
  int error_ = 0;
};

}  // namespace weft::fakes
