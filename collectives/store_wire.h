// Messages between the ranks and the one that serves their store.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace weft::collectives {

// A request is its kind, two lengths, then name and contents; a reply whether it was so, a length,
// then contents. In the machine's byte order, as all that transports send.
enum class StoreRequest : char {
  kHello = 'H',  // name: the secret. The first of a connection
  kPost = 'P',   // true: taken; false: there was such a name
  kRead = 'R',   // true and the contents; false: no such name
  kNames = 'N',  // contents: how many names are known; true and the later ones, a line each
};
inline constexpr std::size_t kStoreRequestHeader = 1 + 2 * sizeof(std::uint32_t);
inline constexpr std::size_t kStoreReplyHeader = 1 + sizeof(std::uint32_t);
// What a peer that is none of ours could ask memory for.
inline constexpr std::uint32_t kLongestStoreName = 4096;
inline constexpr std::uint32_t kLongestStoreContents = 1u << 28;

inline std::uint32_t LengthAt(const char* bytes) {
  std::uint32_t length = 0;
  std::memcpy(&length, bytes, sizeof(length));
  return length;
}
inline void AppendLength(std::string& to, std::size_t length) {
  const auto narrow = static_cast<std::uint32_t>(length);
  char bytes[sizeof(narrow)];
  std::memcpy(bytes, &narrow, sizeof(narrow));
  to.append(bytes, sizeof(bytes));
}

// "tcp://host:port" or "tcp://host:port/secret".
struct StoreAddress {
  std::string host;
  int port = 0;
  std::string secret;
};
bool IsStoreAddress(const std::string& store);
// InvalidArgument names what is wrong with it.
absl::StatusOr<StoreAddress> ParseStoreAddress(const std::string& store);

// The first address of a host, IPv4 or IPv6. InvalidArgument without one.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
absl::StatusOr<SocketAddress> Resolve(const std::string& host, int port);

// Sends everything; false when the connection is broken or takes nothing for too long.
bool SendAll(int socket, const std::string& bytes);

}  // namespace weft::collectives
