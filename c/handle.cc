#include "c/handle.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "weft/c/weft.h"

namespace weft::c {
namespace {

struct Entry {
  Kind kind;
  Handle* handle;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Entry> living;
};

// Never destroyed: handles may be destroyed by destructors that run when the program ends.
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

std::string& ThreadErrorSlot() {
  thread_local std::string error;
  return error;
}

}  // namespace

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kDevice:
      return "device";
    case Kind::kStream:
      return "stream";
    case Kind::kTransport:
      return "transport";
    case Kind::kRuntime:
      return "runtime";
    case Kind::kJob:
      return "job";
    case Kind::kState:
      return "state";
  }
  return "";
}

// The base is what an object of any kind begins with, so that both have one address.
Handle::Handle(Kind kind) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.living.insert_or_assign(this, Entry{kind, this});
}

Handle::~Handle() {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.living.erase(this);
}

void Handle::SetLastError(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = std::string(status.message());
}

std::string Handle::last_error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

absl::Status CheckUnused(const Handle& handle, Kind kind) {
  const int users = handle.users_;
  if (users == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this ", Name(kind), " is still used by ", users,
                   users == 1 ? " other handle, which is" : " other handles, which are",
                   " to be destroyed first"));
}

absl::Status CheckHandle(const void* handle, Kind kind) {
  if (handle == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the ", Name(kind), " is a null handle"));
  }
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.living.find(handle);
  if (found == registry.living.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", Name(kind), " handle is none of Weft's, or was destroyed"));
  }
  if (found->second.kind != kind) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the handle is one of a ", Name(found->second.kind), ", not of a ", Name(kind)));
  }
  return absl::OkStatus();
}

Handle* AnyHandle(const void* handle) {
  if (handle == nullptr) return nullptr;
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.living.find(handle);
  return found == registry.living.end() ? nullptr : found->second.handle;
}

void SetThreadError(const absl::Status& status) {
  ThreadErrorSlot() = std::string(status.message());
}
const std::string& ThreadError() { return ThreadErrorSlot(); }

char* CopyOf(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace weft::c
