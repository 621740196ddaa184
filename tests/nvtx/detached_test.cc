// Without a tool, what the other tests of this folder do tells nobody anything, and costs no
// memory.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/annotate.h"
#include "runtime/messages.h"
#include "tests/nvtx/record.h"
#include "tests/nvtx/training.h"

namespace {
std::atomic<std::int64_t> allocations = 0;
}  // namespace

// Every form but those for extended alignment: sanitizers hold each new against its delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::nothrow);
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }

namespace weft::testing {
namespace {

TEST(Detached, TrainingTellsNobody) {
  for (const Training& training : Trainings()) Train(training);
  EXPECT_FALSE(base::ToolAttached());
  EXPECT_EQ(dlopen(WEFT_NVTX_INJECTION, RTLD_LAZY | RTLD_NOLOAD), nullptr) << "it was loaded";
  void* const library = dlopen(WEFT_NVTX_INJECTION, RTLD_LAZY);
  ASSERT_NE(library, nullptr) << WEFT_NVTX_INJECTION " cannot be loaded";
  NvtxRecord& record = *reinterpret_cast<NvtxRecordFunction>(dlsym(library, kNvtxRecordFunction))();
  EXPECT_TRUE(record.Events().empty());
  EXPECT_TRUE(record.strings.empty());
  EXPECT_TRUE(record.threads.empty());
}

TEST(Detached, AnnotationsAllocateNothing) {
  const base::OpAnnotation* const none = nullptr;
  const std::string name = "a name that is longer than what a string holds within itself";
  const std::int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    const base::Range of_op(none, i);
    const base::Range of_message(runtime::kWaitForStep, i);
    base::LongRange of_label(base::Category::kJob, base::Register(name), i);
    of_label.End();
  }
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace weft::testing
