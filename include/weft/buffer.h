// Memory of a device.
#pragma once

#include <cstddef>

#pragma GCC visibility push(default)
namespace weft {

// Owned, 64-byte aligned, contents unspecified until written. Freed on destruction: the owner
// keeps it alive until every stream item that uses it has run. Not resizable, not copyable.
class Buffer {
 public:
  virtual ~Buffer() = default;

  virtual void* data() const = 0;
  // As asked for; zero is allowed (data() may then be null).
  virtual std::size_t bytes() const = 0;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data());
  }
};

}  // namespace weft
#pragma GCC visibility pop
