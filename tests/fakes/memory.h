// The memory that calls allocated, and who used which bytes of it last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/clock.h"
#include "tests/fakes/engine.h"

namespace weft::fakes {

// A work at its place: what its accesses are compared with, and by which it is named.
struct Site {
  std::size_t component = 0;
  std::uint32_t tick = 0;
  std::shared_ptr<const std::string> label;  // "'copy' on device 0 stream 'a'"
};

enum class MemoryKind { kDevice, kPinned, kRegistered };

struct Segment {
  std::size_t end = 0;
  bool written = false;
  Site write;               // the last, or none: tick 0
  std::vector<Site> reads;  // since then, none ordered before another
};

struct Allocation {
  std::int64_t number = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool freed = false;
  std::map<std::size_t, Segment> segments;  // by their begin; they cover the allocation

  std::string Describe() const;
  std::string Range(std::size_t begin, std::size_t end) const;
};

// Not thread-safe: the world's lock is held.
class Memory {
 public:
  using Report = std::function<void(FaultKind, std::string)>;

  ~Memory() { Clear(); }

  // Device memory is filled with ones, which are no numbers; that of the host counts as written.
  Allocation& Allocate(MemoryKind kind, int device, std::size_t bytes);
  Allocation& Register(void* data, std::size_t bytes);
  // The one that `data` points into or stands close to, also a freed one; else null.
  Allocation* Find(const void* data);
  // That of the beginning `data`, unless freed.
  Allocation* Begins(const void* data);

  // Compares the access with earlier ones and remembers it. False when its bytes cannot be used.
  bool Note(const Access& access, const Site& site, const Clock& clock, int device, bool copy,
            bool pageable, const Report& report);
  // Later accesses have to be ordered after `site`, where the memory came to be.
  void Begin(Allocation& allocation, const Site& site);
  // Uses that are not ordered before `clock` are faults. The bytes stay until others need the room.
  void Free(Allocation& allocation, const Clock& clock, const std::string& by,
            const Report& report);

  std::size_t BytesOf(int device) const;
  std::vector<const Allocation*> Living() const;
  void Clear();

 private:
  void Split(Allocation& allocation, std::size_t at);
  void Release(const Allocation& allocation);

  std::map<std::uintptr_t, Allocation> allocations_;  // by the begin of what they reserve
  std::vector<std::uintptr_t> freed_;                 // in the order in which they were freed
  std::size_t freed_bytes_ = 0;
  std::size_t first_freed_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace weft::fakes
