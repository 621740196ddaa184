// The messages of one operation between the members of a group.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/board.h"
#include "collectives/gloo/session.h"
#include "weft/clock.h"

namespace weft::collectives::gloo {

using MessageBuffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

// Connections of one communicator, and what tells a broken one: a receive that is never answered,
// which gloo fails when the connection does. gloo forgets to fail a message that is half received.
class Connections {
 public:
  // `context` is null for a group of one.
  Connections(std::shared_ptr<::gloo::Context> context, int rank, int size);

  ::gloo::Context& context() { return *context_; }
  int rank() const { return rank_; }
  // Why the connection to `peer` is broken, or empty.
  std::string WhyBroken(int peer);
  // Resets every connection; peers see it at once. Thread-safe.
  void Reset();

 private:
  const std::shared_ptr<::gloo::Context> context_;
  const int rank_;
  char nothing_ = 0;
  std::vector<MessageBuffer> canaries_;
};

// Messages that are under way together. A message is known by peer, direction and tag; both sides
// post the same number of bytes, and messages of no bytes are not sent at all. Not thread-safe.
class Wire {
 public:
  // What went wrong: the group rank of the peer at fault, -1 when the caller is to find out why.
  struct Trouble {
    int peer = -1;
    bool timed_out = false;
    std::vector<int> missing;  // group ranks, when timed out
    std::string text;          // what gloo says
  };
  // `interrupted` says that the operation is to end.
  Wire(Session& session, Connections& connections, std::function<bool()> interrupted);
  // Resets the connections if messages are still under way. Afterwards nothing touches their
  // memory.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void Send(int peer, std::uint64_t tag, const void* data, std::int64_t bytes);
  void Recv(int peer, std::uint64_t tag, void* data, std::int64_t bytes);

  // Until every message has completed. With `one_limit` the deadline counts for all of them
  // together, otherwise for each anew.
  std::optional<Trouble> Wait(bool one_limit = false);
  // Until the oldest message from `peer` has completed.
  std::optional<Trouble> WaitForOldest(int peer);

 private:
  struct Message {
    int peer = 0;
    bool recv = false;
    MessageBuffer buffer;
    bool done = false;
  };

  void Post(int peer, std::uint64_t tag, void* data, std::int64_t bytes, bool recv);
  std::optional<Trouble> WaitFor(Message& message, Nanos limit);
  std::optional<Trouble> LookAround();
  bool IsComplete(Message& message);
  std::vector<int> Missing();

  Session& session_;
  Connections& connections_;
  const std::function<bool()> interrupted_;
  std::vector<Message> messages_;
  std::optional<Trouble> trouble_;  // met while posting
};

}  // namespace weft::collectives::gloo
