#include "weft/store_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "collectives/store_wire.h"

namespace weft {
namespace collectives {
namespace {

std::string Secret() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

int PortOf(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return -1;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// One thread has all connections and the entries; whoever misbehaves loses the connection.
class Server final : public StoreServer {
 public:
  Server(Socket listener, Socket end, std::string address, std::string secret)
      : listener_(std::move(listener)),
        end_(std::move(end)),
        address_(std::move(address)),
        secret_(std::move(secret)),
        thread_([this] { Serve(); }) {}

  ~Server() override {
    const std::uint64_t one = 1;
    // An eventfd takes it at once.
    [[maybe_unused]] const ssize_t written = ::write(end_.fd(), &one, sizeof(one));
    thread_.join();
  }

  const std::string& address() const override { return address_; }

 private:
  struct Connection {
    Socket socket;
    std::string received;
    bool known = false;  // has told the secret
  };

  void Serve() {
    std::vector<pollfd> waits;
    for (;;) {
      waits.clear();
      waits.push_back({end_.fd(), POLLIN, 0});
      waits.push_back({listener_.fd(), POLLIN, 0});
      for (const Connection& connection : connections_) {
        waits.push_back({connection.socket.fd(), POLLIN, 0});
      }
      if (::poll(waits.data(), waits.size(), -1) < 0) continue;
      if (waits[0].revents != 0) return;
      std::size_t i = 2;
      for (auto it = connections_.begin(); it != connections_.end(); ++i) {
        const bool keep = waits[i].revents == 0 || Receive(*it);
        it = keep ? std::next(it) : connections_.erase(it);
      }
      if (waits[1].revents != 0) Accept();
    }
  }

  void Accept() {
    Socket accepted(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (accepted.fd() < 0) return;
    const timeval longest{5, 0};  // of a reply that the peer does not take
    ::setsockopt(accepted.fd(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest));
    connections_.push_back({std::move(accepted), {}, false});
  }

  bool Receive(Connection& connection) {
    char bytes[1 << 16];
    const ssize_t n = ::recv(connection.socket.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    std::string& received = connection.received;
    received.append(bytes, static_cast<std::size_t>(n));
    while (received.size() >= kStoreRequestHeader) {
      const std::uint32_t name = LengthAt(received.data() + 1);
      const std::uint32_t contents = LengthAt(received.data() + 1 + sizeof(name));
      if (name > kLongestStoreName || contents > kLongestStoreContents) return false;
      const std::size_t end = kStoreRequestHeader + name + contents;
      if (received.size() < end) break;
      const auto kind = static_cast<StoreRequest>(received[0]);
      if (!Answer(connection, kind, received.substr(kStoreRequestHeader, name),
                  received.substr(kStoreRequestHeader + name, contents))) {
        return false;
      }
      received.erase(0, end);
    }
    return true;
  }

  bool Answer(Connection& connection, StoreRequest kind, const std::string& name,
              std::string contents) {
    if (kind == StoreRequest::kHello) {
      connection.known = name == secret_;
      return connection.known && Reply(connection, true, "");
    }
    if (!connection.known) return false;
    if (kind == StoreRequest::kPost) {
      const bool taken = entries_.emplace(name, std::move(contents)).second;
      if (taken) names_.push_back(name);
      return Reply(connection, taken, "");
    }
    if (kind == StoreRequest::kRead) {
      const auto found = entries_.find(name);
      return Reply(connection, found != entries_.end(),
                   found == entries_.end() ? std::string() : found->second);
    }
    std::size_t from = 0;
    if (kind != StoreRequest::kNames || !absl::SimpleAtoi(contents, &from)) return false;
    std::string lines;
    for (; from < names_.size(); ++from) absl::StrAppend(&lines, names_[from], "\n");
    return Reply(connection, true, lines);
  }

  static bool Reply(const Connection& connection, bool so, const std::string& contents) {
    std::string reply(1, so ? 1 : 0);
    AppendLength(reply, contents.size());
    reply += contents;
    return SendAll(connection.socket.fd(), reply);
  }

  const Socket listener_;
  const Socket end_;
  const std::string address_;
  const std::string secret_;
  std::map<std::string, std::string> entries_;
  std::vector<std::string> names_;  // in the order in which they came
  std::list<Connection> connections_;
  std::thread thread_;
};

}  // namespace
}  // namespace collectives

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(const std::string& host, int port,
                                                                bool secret) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port is ", port, ", not in 0 to 65535"));
  }
  WEFT_ASSIGN_OR_RETURN(const collectives::SocketAddress address, collectives::Resolve(host, port));
  const auto failed = [&](const char* what) {
    return absl::UnavailableError(
        absl::ErrnoToStatus(errno, absl::StrCat(what, " on host '", host, "', port ", port))
            .message());
  };
  collectives::Socket listener(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (listener.fd() < 0) return failed("cannot open a socket");
  const int on = 1;
  ::setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) !=
          0 ||
      ::listen(listener.fd(), SOMAXCONN) != 0) {
    return failed("cannot listen");
  }
  collectives::Socket end(::eventfd(0, EFD_CLOEXEC));
  if (end.fd() < 0) return failed("cannot make an event");
  const bool brackets = host.find(':') != std::string::npos;
  const std::string word = secret ? collectives::Secret() : std::string();
  std::string text = absl::StrCat("tcp://", brackets ? "[" : "", host, brackets ? "]" : "", ":",
                                  collectives::PortOf(listener.fd()), secret ? "/" : "", word);
  return std::make_unique<collectives::Server>(std::move(listener), std::move(end), std::move(text),
                                               word);
}

}  // namespace weft
