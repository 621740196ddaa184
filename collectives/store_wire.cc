#include "collectives/store_wire.h"

#include <netdb.h>

#include <cerrno>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft::collectives {
namespace {

constexpr std::string_view kScheme = "tcp://";

}  // namespace

bool IsStoreAddress(const std::string& store) {
  return store.compare(0, kScheme.size(), kScheme) == 0;
}

absl::StatusOr<StoreAddress> ParseStoreAddress(const std::string& store) {
  StoreAddress address;
  std::string rest = store.substr(kScheme.size());
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    address.secret = rest.substr(slash + 1);
    rest.resize(slash);
  }
  const auto colon = rest.rfind(':');
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &address.port) || address.port < 1 ||
      address.port > 65535 || address.secret.size() > kLongestStoreName) {
    return absl::InvalidArgumentError(
        absl::StrCat("store '", store, "' is not tcp://host:port with a port of 1 to 65535"));
  }
  address.host = rest.substr(0, colon);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  return address;
}

absl::StatusOr<SocketAddress> Resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0 || found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("host '", host, "' has no address: ", ::gai_strerror(error)));
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

bool SendAll(int socket, const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace weft::collectives
