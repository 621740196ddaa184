// Handles of the C ABI: which of them live, what each stands for, and what its last error was.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/c_result.h"
#include "weft/c/types.h"

namespace weft::c {

enum class Kind { kDevice, kStream, kTransport, kRuntime, kJob, kState };
const char* Name(Kind kind);

// The base of what handles point to. Registered while it lives, so that a pointer which is none, or
// no more, is told without a look at its memory.
class Handle {
 public:
  explicit Handle(Kind kind);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void SetLastError(const absl::Status& status);
  std::string last_error() const;

 protected:
  ~Handle();

 private:
  friend class InUse;
  friend absl::Status CheckUnused(const Handle& handle, Kind kind);

  mutable std::mutex mutex_;
  std::string last_error_;
  std::atomic<int> users_{0};
};

// Keeps a handle from being destroyed by its caller while another one works with it.
class InUse {
 public:
  explicit InUse(Handle& handle) : handle_(handle) { ++handle_.users_; }
  ~InUse() { --handle_.users_; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  Handle& handle_;
};
absl::Status CheckUnused(const Handle& handle, Kind kind);

// InvalidArgument for null, and for what is no living handle of that kind.
absl::Status CheckHandle(const void* handle, Kind kind);
// Null for what is no living handle.
Handle* AnyHandle(const void* handle);

void SetThreadError(const absl::Status& status);
const std::string& ThreadError();

// Where an output goes, or a text comes from; `what` as the header calls it.
template <typename T>
absl::Status CheckPointer(const T* pointer, const char* what) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is a null pointer"));
}

// Runs a call's body, which returns a status: no exception leaves, and a failure is kept for
// weftGetLastError().
template <typename Body>
weftResult_t Guard(const void* handle, Body&& body) noexcept {
  try {
    absl::Status status;
    try {
      status = std::forward<Body>(body)();
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("the host is out of memory");
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    } catch (...) {
      status = absl::InternalError("an exception of no known kind");
    }
    if (status.ok()) return weftSuccess;
    SetThreadError(status);
    if (Handle* const known = AnyHandle(handle)) known->SetLastError(status);
    return base::ResultOf(status);
  } catch (...) {
    return weftOutOfMemory;  // not even for the sentence
  }
}

// The same for a call on a handle: the body is given the object.
template <typename Object, typename Body>
weftResult_t Call(Object* handle, Kind kind, Body&& body) noexcept {
  return Guard(handle, [&]() -> absl::Status {
    if (absl::Status known = CheckHandle(handle, kind); !known.ok()) return known;
    return body(*handle);
  });
}

template <typename Object>
weftResult_t Destroy(Object* handle, Kind kind) noexcept {
  if (handle == nullptr) return weftSuccess;
  return Call(handle, kind, [&](Object& object) -> absl::Status {
    if (absl::Status unused = CheckUnused(object, kind); !unused.ok()) return unused;
    delete &object;
    return absl::OkStatus();
  });
}

// A text that weftFree() frees.
char* CopyOf(const std::string& text);

}  // namespace weft::c
