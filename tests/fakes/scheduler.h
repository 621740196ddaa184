// Picks what runs next, runs it, and finds out when nothing can.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/fakes/world.h"

namespace weft::fakes {

// All with the world's lock held.
class Scheduler {
 public:
  explicit Scheduler(World& world) : world_(world) {}

  // Of the engine's thread, for ever.
  void Loop();

  // Ends the meeting's kernels that have started and whose device is aborted.
  void EndAborted(Meeting& meeting);
  void Abort(Meeting& meeting, int device);

 private:
  bool MayRun() const;
  // Why a node at the head of its queue cannot start; empty: it can.
  std::string Obstacle(const Node& node) const;
  bool Startable(const Node& node) const;
  bool Step(std::unique_lock<std::mutex>& lock);
  void Start(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Node>& node);
  void RunHostFunction(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Node>& node);
  void Meet(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Node>& node, bool sound);
  void Finish(const std::shared_ptr<Node>& node);
  bool Check(const Node& node, const Site& site);

  enum class Hang { kNo, kAfterGrace, kNow };
  Hang Hanging() const;
  std::string WaitGraph() const;
  std::string Peers(const Node& node) const;
  std::string Describe(const Mark& mark) const;
  void Break();

  World& world_;
};

}  // namespace weft::fakes
