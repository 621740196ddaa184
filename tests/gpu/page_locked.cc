// For programs on a real GPU: everything on their heap is page-locked, so that the laws, whose
// operands are vectors, run on the device as they are. Without a GPU it is an ordinary heap.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "tests/support/pinned.h"

namespace weft::testing {
namespace {

constexpr std::size_t kBytes = std::size_t{256} << 20;

// In front of each block, whose size is a power of two.
struct alignas(16) Header {
  union {
    int log_size;  // while it is used
    Header* next;  // while it is free
  };
};

// All of it is there before any constructor runs.
constinit std::mutex mutex;
constinit unsigned char* begin = nullptr;
constinit unsigned char* end = nullptr;
constinit unsigned char* unused = nullptr;
constinit Header* free_blocks[48] = {};

// Mapped and then registered: it stays there when the driver has gone, as some destructors run
// then.
bool Begin() {
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (cudaHostRegister(memory, kBytes, cudaHostRegisterPortable) != cudaSuccess) {
    (void)cudaGetLastError();
    munmap(memory, kBytes);
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  unused = begin = static_cast<unsigned char*>(memory);
  end = begin + kBytes;
  return true;
}
const bool begun = Begin();

// Null before Begin().
void* Take(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (begin == nullptr) return nullptr;
  const int log_size = std::bit_width(std::max<std::size_t>(bytes, 1) + sizeof(Header) - 1);
  Header* block = nullptr;
  if (log_size < 48 && free_blocks[log_size] != nullptr) {
    block = free_blocks[log_size];
    free_blocks[log_size] = block->next;
  } else {
    if (log_size >= 48 || (std::size_t{1} << log_size) > static_cast<std::size_t>(end - unused)) {
      std::fprintf(stderr, "the page-locked heap of the test has no %zu bytes left\n", bytes);
      std::abort();
    }
    block = reinterpret_cast<Header*>(unused);
    unused += std::size_t{1} << log_size;
  }
  block->log_size = log_size;
  return block + 1;
}

// False for what does not come from Take().
bool Return(void* data) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (data < begin || data >= end) return false;
  Header* const block = static_cast<Header*>(data) - 1;
  const int log_size = block->log_size;
  block->next = free_blocks[log_size];
  free_blocks[log_size] = block;
  return true;
}

}  // namespace

// It is already.
Pinned::Pinned(void* data, std::size_t) : data_(data) {}
Pinned::~Pinned() { (void)data_; }

}  // namespace weft::testing

void* operator new(std::size_t bytes) {
  if (void* const data = weft::testing::Take(bytes)) return data;
  if (void* const data = std::malloc(bytes > 0 ? bytes : 1)) return data;
  throw std::bad_alloc();
}

void operator delete(void* data) noexcept {
  if (!weft::testing::Return(data)) std::free(data);
}

void operator delete(void* data, std::size_t) noexcept { operator delete(data); }
