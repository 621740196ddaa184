#include "collectives/store_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::collectives {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
constexpr Nanos kNamesAge = 2 * kMillisecond;
constexpr Nanos kConnectPause = 20 * kMillisecond;

bool ReceiveAll(int socket, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::recv(socket, to, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// A connected socket, or -1.
int Connected(const StoreAddress& address) {
  const absl::StatusOr<SocketAddress> to = Resolve(address.host, address.port);
  if (!to.ok()) return -1;
  const int fd = ::socket(to->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
  if (fd < 0) return -1;
  // Both bound a server that has stopped without closing the connection.
  const timeval connect{1, 0};
  const timeval answer{5, 0};
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &connect, sizeof(connect));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &answer, sizeof(answer));
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to->storage), to->size) == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

StoreClient::~StoreClient() {
  if (socket_ >= 0) ::close(socket_);
}

bool StoreClient::Connect() {
  if (socket_ >= 0) return true;
  if (broken_) return false;
  const Nanos now = Clock::Steady().Now();
  if (now < next_connect_) return false;
  socket_ = Connected(address_);
  next_connect_ = now + kConnectPause;
  if (socket_ < 0) return false;
  // A server that closes the connection now does not know the secret.
  return AskConnected(StoreRequest::kHello, address_.secret, "").has_value();
}

std::optional<StoreClient::Reply> StoreClient::Ask(StoreRequest kind, const std::string& name,
                                                   const std::string& contents) {
  if (!Connect()) return std::nullopt;
  return AskConnected(kind, name, contents);
}

std::optional<StoreClient::Reply> StoreClient::AskConnected(StoreRequest kind,
                                                            const std::string& name,
                                                            const std::string& contents) {
  std::string request(1, static_cast<char>(kind));
  AppendLength(request, name.size());
  AppendLength(request, contents.size());
  absl::StrAppend(&request, name, contents);
  char header[kStoreReplyHeader];
  if (SendAll(socket_, request) && ReceiveAll(socket_, header, sizeof(header))) {
    Reply reply;
    reply.so = header[0] != 0;
    const std::uint32_t length = LengthAt(header + 1);
    if (length <= kLongestStoreContents) {
      reply.contents.resize(length);
      if (ReceiveAll(socket_, reply.contents.data(), length)) return reply;
    }
  }
  ::close(socket_);
  socket_ = -1;
  broken_ = true;
  return std::nullopt;
}

absl::Status StoreClient::Post(const std::string& name, const std::string& contents) {
  if (name.size() > kLongestStoreName || contents.size() > kLongestStoreContents) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name.substr(0, 100), "' is too long for a store"));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::optional<Reply> reply = Ask(StoreRequest::kPost, name, contents);
  if (!reply) {
    if (broken_) unsent_.emplace(name, contents);
    return absl::UnavailableError(absl::StrCat("the store at ", address_.host, ":", address_.port,
                                               broken_ ? " has ended" : " cannot be reached"));
  }
  if (reply->so) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("'", name, "' exists in the store at ", address_.host, ":", address_.port));
}

void StoreClient::LearnNames() {
  const Nanos now = Clock::Steady().Now();
  if (names_known_ > 0 && now - names_learned_ < kNamesAge) return;
  const std::optional<Reply> reply = Ask(StoreRequest::kNames, "", absl::StrCat(names_known_));
  if (!reply) return;
  names_learned_ = now;
  for (std::string& name :
       std::vector<std::string>(absl::StrSplit(reply->contents, '\n', absl::SkipEmpty()))) {
    names_.insert(std::move(name));
    ++names_known_;
  }
}

std::optional<std::string> StoreClient::Read(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!names_.contains(name)) LearnNames();
  if (names_.contains(name)) {
    if (const std::optional<Reply> reply = Ask(StoreRequest::kRead, name, "")) {
      if (reply->so) return reply->contents;
    }
  }
  const auto unsent = unsent_.find(name);
  if (unsent == unsent_.end()) return std::nullopt;
  return unsent->second;
}

}  // namespace weft::collectives
