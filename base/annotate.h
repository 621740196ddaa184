// What tools that attach over NVTX (Nsight Systems) show of Weft: ranges in the domain "weft", and
// names of threads. Without a tool nothing is formatted, looked up, registered or allocated; built
// without NVTX, nothing is left of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace weft::base {

#ifdef WEFT_HAS_NVTX
inline constexpr bool kHasNvtx = true;
bool ToolAttached();  // the first call loads the tool that the environment names; thread-safe
#else
inline constexpr bool kHasNvtx = false;
constexpr bool ToolAttached() { return false; }
#endif

enum class Category : std::uint32_t {
  kPlan = 1,      // Commit() and its parts
  kReduce,        // collectives that reduce, and what works on the sums
  kNewtonSchulz,  // "ns"
  kUpdate,        // the rest of the rules
  kPublish,       // from one rank to many
  kGather,        // from many ranks to one or all
  kWait,          // of the host, or of a stream of the caller's
  kWatchdog,      // a failure is looked into and spread
  kJob,           // a matrix's job, from submitted to delivered
};

// A string that the tool knows; null without one. Valid until the process ends.
struct Label {
  void* handle = nullptr;
};

// A fixed message, registered when a tool first sees it. For constants of static life.
class Message {
 public:
  constexpr Message(Category category, const char* text) : category_(category), text_(text) {}
  Category category() const { return category_; }
  Label label() const {
    if constexpr (kHasNvtx)
      if (ToolAttached()) return Registered();
    return {};
  }

 private:
  Label Registered() const;

  const Category category_;
  const char* const text_;
  mutable std::atomic<void*> handle_ = nullptr;
};

// An op of the plan.
struct OpAnnotation {
  struct Payload {          // laid out as the schema tells the tool
    std::int64_t step = 0;  // the range's
    Label matrix;
    std::int64_t bytes = 0;
    std::int32_t root = -1;  // world rank
    std::int32_t op = -1;    // index into Plan::ops
    Label communicator;
    Label stage;
  };
  Category category = Category::kPlan;
  Label message;
  Payload payload;
};

namespace annotate {  // where a tool is attached
Label Register(const std::string& text);
void Push(Category category, Label message, std::int64_t number);
void Push(const OpAnnotation& op, std::int64_t step);
void Pop();
std::uint64_t Start(Category category, Label message, std::int64_t number);
void End(std::uint64_t id);
void NameThread(const std::string& name);
}  // namespace annotate

inline Label Register(const std::string& text) {
  if constexpr (kHasNvtx)
    if (ToolAttached()) return annotate::Register(text);
  return {};
}

// The calling thread's, to the end of the scope. The payload is a number, of which the message says
// what it is, or that of an op. Null messages and ops: nothing.
class Range {
 public:
  Range(Category category, Label message, std::int64_t number)
      : open_(kHasNvtx && message.handle != nullptr) {
    if constexpr (kHasNvtx)
      if (open_) annotate::Push(category, message, number);
  }
  Range(const Message& message, std::int64_t number)
      : Range(message.category(), message.label(), number) {}
  Range(const OpAnnotation* op, std::int64_t step) : open_(kHasNvtx && op != nullptr) {
    if constexpr (kHasNvtx)
      if (open_) annotate::Push(*op, step);
  }
  ~Range() {
    if constexpr (kHasNvtx)
      if (open_) annotate::Pop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const bool open_;
};

// Begins here and ends with the first End(), on whatever thread. Not thread-safe.
class LongRange {
 public:
  LongRange(Category category, Label message, std::int64_t number)
      : open_(kHasNvtx && message.handle != nullptr) {
    if constexpr (kHasNvtx)
      if (open_) id_ = annotate::Start(category, message, number);
  }
  ~LongRange() { End(); }
  LongRange(const LongRange&) = delete;
  LongRange& operator=(const LongRange&) = delete;

  void End() {
    if constexpr (kHasNvtx)
      if (open_) annotate::End(id_);
    open_ = false;
  }

 private:
  bool open_;
  std::uint64_t id_ = 0;
};

// Names the calling thread for the kernel, which keeps 15 characters, and for the tool.
void NameThread(const std::string& name);

}  // namespace weft::base
