#include "tests/fakes/memory.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace weft::fakes {
namespace {

// Before and behind each allocation of ours: an access that misses by less is seen as one.
constexpr std::size_t kGuard = 256;
constexpr std::align_val_t kAlignment{256};
// Freed memory is not used again before this much was freed: a late use finds it freed, not new.
constexpr std::size_t kQuarantine = std::size_t{256} << 20;

bool Before(const Site& site, const Clock& clock) { return clock.At(site.component) >= site.tick; }

std::size_t GuardOf(const Allocation& allocation) {
  return allocation.kind == MemoryKind::kRegistered ? 0 : kGuard;
}

}  // namespace

std::string Allocation::Describe() const {
  const std::string what = kind == MemoryKind::kDevice
                               ? "memory of device " + std::to_string(device)
                           : kind == MemoryKind::kPinned ? "page-locked memory"
                                                         : "registered memory";
  return "allocation " + std::to_string(number) + " (" + std::to_string(bytes) + " bytes, " + what +
         ")";
}

std::string Allocation::Range(std::size_t begin, std::size_t end) const {
  return "bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " + Describe();
}

Allocation& Memory::Allocate(MemoryKind kind, int device, std::size_t bytes) {
  auto* base = static_cast<std::byte*>(::operator new(bytes + 2 * kGuard, kAlignment));
  std::memset(base, 0xff, bytes + 2 * kGuard);
  Allocation& made = allocations_[reinterpret_cast<std::uintptr_t>(base)];
  made = Allocation{count_++, kind, device, base + kGuard, bytes, false, {}};
  if (bytes > 0) made.segments[0] = Segment{bytes, kind != MemoryKind::kDevice, {}, {}};
  return made;
}

Allocation& Memory::Register(void* data, std::size_t bytes) {
  Allocation& made = allocations_[reinterpret_cast<std::uintptr_t>(data)];
  made = Allocation{
      count_++, MemoryKind::kRegistered, -1, static_cast<std::byte*>(data), bytes, false, {}};
  if (bytes > 0) made.segments[0] = Segment{bytes, true, {}, {}};
  return made;
}

Allocation* Memory::Find(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Allocation& found = std::prev(after)->second;
  const std::uintptr_t end =
      reinterpret_cast<std::uintptr_t>(found.data) + found.bytes + GuardOf(found);
  // Memory that was only registered is the host's own again.
  if (found.freed && found.kind == MemoryKind::kRegistered) return nullptr;
  return address < end ? &found : nullptr;
}

Allocation* Memory::Begins(const void* data) {
  Allocation* found = Find(data);
  return found != nullptr && !found->freed && found->data == data ? found : nullptr;
}

void Memory::Split(Allocation& allocation, std::size_t at) {
  if (at == 0 || at >= allocation.bytes) return;
  auto segment = std::prev(allocation.segments.upper_bound(at));
  if (segment->first == at) return;
  Segment right = segment->second;
  segment->second.end = at;
  allocation.segments.emplace(at, std::move(right));
}

bool Memory::Note(const Access& access, const Site& site, const Clock& clock, int device, bool copy,
                  bool pageable, const Report& report) {
  if (access.bytes == 0) return true;
  const auto does = [&] { return *site.label + (access.write ? " writes " : " reads "); };
  if (access.data == nullptr) {
    report(FaultKind::kBounds, does() + std::to_string(access.bytes) + " bytes at null");
    return false;
  }
  Allocation* allocation = Find(access.data);
  if (allocation == nullptr) {
    if (copy || pageable) return true;
    report(FaultKind::kBounds,
           does() + std::to_string(access.bytes) + " bytes of memory that no call allocated");
    return false;
  }
  const std::ptrdiff_t offset = static_cast<const std::byte*>(access.data) - allocation->data;
  if (allocation->freed) {
    report(FaultKind::kUseAfterFree, does() + allocation->Describe() + ", which is freed");
    return false;
  }
  if (offset < 0 || offset + access.bytes > allocation->bytes) {
    report(FaultKind::kBounds,
           does() + "bytes [" + std::to_string(offset) + ", " +
               std::to_string(offset + static_cast<std::int64_t>(access.bytes)) + ") of " +
               allocation->Describe());
    return false;
  }
  if (allocation->kind == MemoryKind::kDevice && allocation->device != device && !copy) {
    report(FaultKind::kBounds, does() + allocation->Describe() + ", which is another device's");
    return false;
  }
  const auto begin = static_cast<std::size_t>(offset), end = begin + access.bytes;
  Split(*allocation, begin);
  Split(*allocation, end);
  const auto first = allocation->segments.find(begin);
  const auto last = allocation->segments.lower_bound(end);
  bool raced = false, unwritten = false;
  const auto race = [&](const auto& segment, const Site& other, const char* did) {
    if (raced) return;
    raced = true;
    report(FaultKind::kRace, does() + allocation->Range(segment->first, segment->second.end) +
                                 ", which " + *other.label + did + "; nothing orders them");
  };
  for (auto segment = first; segment != last; ++segment) {
    Segment& now = segment->second;
    if (!access.write && !now.written) {
      if (!unwritten) {
        report(FaultKind::kUnwritten,
               does() + allocation->Range(segment->first, now.end) + ", which nothing wrote");
      }
      unwritten = true;
      now.written = true;  // Reported once.
    }
    if (now.write.tick > 0 && !Before(now.write, clock)) {
      race(segment, now.write, now.written ? " writes" : " allocates");
    }
    if (access.write) {
      for (const Site& read : now.reads) {
        if (!Before(read, clock)) race(segment, read, " reads");
      }
    } else {
      std::erase_if(now.reads, [&](const Site& read) { return Before(read, clock); });
      now.reads.push_back(site);
    }
  }
  if (!access.write) return true;
  allocation->segments.erase(std::next(first), last);
  first->second = Segment{end, true, site, {}};
  return true;
}

void Memory::Begin(Allocation& allocation, const Site& site) {
  for (auto& [begin, segment] : allocation.segments) segment.write = site;
}

void Memory::Free(Allocation& allocation, const Clock& clock, const std::string& by,
                  const Report& report) {
  for (const auto& [begin, segment] : allocation.segments) {
    const Site* user = nullptr;
    if (segment.write.tick > 0 && !Before(segment.write, clock)) user = &segment.write;
    for (const Site& read : segment.reads) {
      if (!Before(read, clock)) user = &read;
    }
    if (user == nullptr) continue;
    report(FaultKind::kUseAfterFree, by + " frees " + allocation.Describe() + ", of which " +
                                         *user->label + " uses bytes [" + std::to_string(begin) +
                                         ", " + std::to_string(segment.end) +
                                         "); nothing orders them");
    break;
  }
  allocation.freed = true;
  allocation.segments.clear();
  if (allocation.kind == MemoryKind::kRegistered) {
    allocations_.erase(reinterpret_cast<std::uintptr_t>(allocation.data));
    return;
  }
  freed_.push_back(reinterpret_cast<std::uintptr_t>(allocation.data - kGuard));
  freed_bytes_ += allocation.bytes;
  while (freed_bytes_ > kQuarantine) {
    const auto oldest = allocations_.find(freed_[first_freed_++]);
    freed_bytes_ -= oldest->second.bytes;
    Release(oldest->second);
    allocations_.erase(oldest);
  }
}

std::size_t Memory::BytesOf(int device) const {
  std::size_t bytes = 0;
  for (const Allocation* allocation : Living()) {
    if (allocation->kind == MemoryKind::kDevice && allocation->device == device) {
      bytes += allocation->bytes;
    }
  }
  return bytes;
}

std::vector<const Allocation*> Memory::Living() const {
  std::vector<const Allocation*> living;
  for (const auto& [base, allocation] : allocations_) {
    if (!allocation.freed) living.push_back(&allocation);
  }
  std::sort(living.begin(), living.end(),
            [](const Allocation* a, const Allocation* b) { return a->number < b->number; });
  return living;
}

void Memory::Release(const Allocation& allocation) {
  if (allocation.kind != MemoryKind::kRegistered) {
    ::operator delete(allocation.data - kGuard, kAlignment);
  }
}

void Memory::Clear() {
  for (const auto& [base, allocation] : allocations_) Release(allocation);
  allocations_.clear();
  freed_.clear();
  freed_bytes_ = first_freed_ = 0;
  count_ = 0;
}

}  // namespace weft::fakes
