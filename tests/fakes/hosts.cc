// Host threads: those that stand for ranks, and where they are blocked.
#include "tests/fakes/world.h"

namespace weft::fakes {
namespace {

// Known to the world from the thread's first call to its end.
struct KnownThread {
  Thread thread;

  KnownThread() {
    World& world = World::Get();
    const std::lock_guard lock(world.mutex);
    world.threads.insert(&thread);
  }
  ~KnownThread() {
    World& world = World::Get();
    const std::lock_guard lock(world.mutex);
    world.threads.erase(&thread);
    world.Changed();
  }
};

void Change(int Thread::*count, int by) {
  Thread& thread = Thread::Current();
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  thread.*count += by;
  if (count == &Thread::registered && by > 0) ++world.came;
  thread.failed_polls = 0;
  world.StartEngine();
  // Device work may run now, but nothing else has changed: a thread that waits again and again, as
  // one that polls does, keeps no hang from being one.
  if (count == &Thread::scopes) return world.engine_wake.notify_one();
  world.Changed();
}

}  // namespace

Thread& Thread::Current() {
  static thread_local KnownThread known;
  return known.thread;
}

std::int64_t TimesBlocked() { return Thread::Current().times_blocked; }

HostThread::HostThread() { Change(&Thread::registered, 1); }
HostThread::~HostThread() { Change(&Thread::registered, -1); }
Blocked::Blocked() {
  ++Thread::Current().times_blocked;
  Change(&Thread::scopes, 1);
}
Blocked::~Blocked() { Change(&Thread::scopes, -1); }

}  // namespace weft::fakes
