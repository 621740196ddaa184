#include "collectives/gloo/wire.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "collectives/gloo/quiet_pipe.h"

namespace weft::collectives::gloo {
namespace {

constexpr std::uint64_t kCanaryTag = ~std::uint64_t{0};

}  // namespace

Connections::Connections(std::shared_ptr<::gloo::Context> context, int rank, int size)
    : context_(std::move(context)), rank_(rank), canaries_(size) {
  if (context_ == nullptr) return;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      MessageBuffer canary = context_->createUnboundBuffer(&nothing_, sizeof(nothing_));
      canary->recv(peer, kCanaryTag);
      canaries_[peer] = std::move(canary);
    } catch (const std::exception&) {
      // Broken already; the first message to this peer says so.
    }
  }
}

std::string Connections::WhyBroken(int peer) {
  if (canaries_[peer] == nullptr) return "the connection was never made";
  try {
    canaries_[peer]->abortWaitRecv();
    canaries_[peer]->waitRecv(nullptr, std::chrono::milliseconds(0));
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void Connections::Reset() {
  if (context_ == nullptr) return;
  const QuietPipe quiet;
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
    // Nothing is left to close.
  }
}

Wire::Wire(Session& session, Connections& connections, std::function<bool()> interrupted)
    : session_(session), connections_(connections), interrupted_(std::move(interrupted)) {}

Wire::~Wire() {
  if (messages_.empty()) return;
  messages_.clear();
  // After the messages, since that also passes each connection's lock, under which the sockets'
  // thread may just have used one.
  connections_.Reset();
}

void Wire::Send(int peer, std::uint64_t tag, const void* data, std::int64_t bytes) {
  Post(peer, tag, const_cast<void*>(data), bytes, false);
}

void Wire::Recv(int peer, std::uint64_t tag, void* data, std::int64_t bytes) {
  Post(peer, tag, data, bytes, true);
}

void Wire::Post(int peer, std::uint64_t tag, void* data, std::int64_t bytes, bool recv) {
  if (bytes == 0 || trouble_) return;
  try {
    MessageBuffer buffer =
        connections_.context().createUnboundBuffer(data, static_cast<std::size_t>(bytes));
    if (recv) {
      buffer->recv(peer, tag);
    } else {
      buffer->send(peer, tag);
    }
    messages_.push_back({peer, recv, std::move(buffer)});
  } catch (const std::exception& error) {
    trouble_ = Trouble{peer, false, {}, error.what()};
  }
}

std::optional<Wire::Trouble> Wire::Wait(bool one_limit) {
  const Nanos limit = session_.WaitLimit();
  // Receives first: a peer that does not come is seen there, sends may sit in a socket's memory.
  for (const bool recv : {true, false}) {
    for (Message& message : messages_) {
      if (message.recv != recv) continue;
      auto trouble = WaitFor(message, one_limit ? limit : session_.WaitLimit());
      if (trouble) return trouble;
    }
  }
  messages_.clear();
  return std::exchange(trouble_, std::nullopt);
}

std::optional<Wire::Trouble> Wire::WaitForOldest(int peer) {
  if (trouble_) return trouble_;
  for (Message& message : messages_) {
    if (message.recv && message.peer == peer && !message.done) {
      return WaitFor(message, session_.WaitLimit());
    }
  }
  return std::nullopt;
}

std::optional<Wire::Trouble> Wire::WaitFor(Message& message, Nanos limit) {
  if (trouble_) return trouble_;
  while (!message.done) {
    try {
      message.done = session_.WaitARound(*message.buffer, message.recv);
    } catch (const std::exception& error) {
      return Trouble{message.peer, false, {}, error.what()};
    }
    if (message.done) break;
    if (interrupted_()) return Trouble{};
    if (auto trouble = LookAround()) return trouble;
    if (!message.done && session_.clock().Now() >= limit) {
      Trouble trouble{message.peer, true, Missing(), ""};
      if (trouble.missing.empty()) trouble.missing.push_back(message.peer);
      trouble.peer = trouble.missing.front();
      return trouble;
    }
  }
  return std::nullopt;
}

// Finds connections that broke under a message gloo will not fail. A connection may also have been
// closed in peace, by a peer whose messages are all here.
std::optional<Wire::Trouble> Wire::LookAround() {
  for (Message& message : messages_) {
    if (message.done) continue;
    const std::string why = connections_.WhyBroken(message.peer);
    if (why.empty() || IsComplete(message)) continue;
    return Trouble{message.peer, false, {}, why};
  }
  return std::nullopt;
}

// Only for messages on a broken connection or at the end of all waiting: an incomplete one makes
// gloo close every connection of the group.
bool Wire::IsComplete(Message& message) {
  constexpr std::chrono::milliseconds kNow(0);
  try {
    // The first call may only take back an earlier wake-up.
    for (int attempt = 0; attempt < 2 && !message.done; ++attempt) {
      message.done = message.recv ? message.buffer->waitRecv(nullptr, kNow)
                                  : message.buffer->waitSend(nullptr, kNow);
    }
  } catch (const std::exception&) {
    return false;
  }
  return message.done;
}

std::vector<int> Wire::Missing() {
  std::vector<int> missing;
  for (Message& message : messages_) {
    if (!message.recv || message.done || IsComplete(message)) continue;
    if (missing.empty() || missing.back() != message.peer) missing.push_back(message.peer);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

}  // namespace weft::collectives::gloo
