#include "c/bootstrap.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/c_result.h"
#include "base/status_macros.h"

namespace weft::c {
namespace {

// What ranks tell each other: of one size, and nothing but numbers and text.
struct Blob {
  std::uint32_t magic = WEFT_CONFIG_MAGIC;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int32_t kind = 0;
  std::int32_t code = 0;   // of this rank's status
  std::int32_t bytes = 0;  // of the text
  char text[488] = {};
};
static_assert(sizeof(Blob) == 512);

Blob BlobOf(const weftTransportConfig_t& config, const absl::Status& own, std::string_view text) {
  Blob blob;
  blob.rank = config.rank;
  blob.world_size = config.world_size;
  blob.kind = config.kind;
  blob.code = static_cast<std::int32_t>(own.code());
  const std::string_view shown =
      own.ok() ? text : std::string_view(own.message().data(), own.message().size());
  blob.bytes = static_cast<std::int32_t>(std::min(shown.size(), sizeof(blob.text)));
  std::copy_n(shown.data(), blob.bytes, blob.text);
  return blob;
}

absl::Status Compare(const weftTransportConfig_t& config, const std::vector<Blob>& blobs) {
  for (int rank = 0; rank < config.world_size; ++rank) {
    const Blob& blob = blobs[rank];
    if (blob.magic != WEFT_CONFIG_MAGIC || blob.bytes < 0 ||
        blob.bytes > static_cast<std::int32_t>(sizeof(blob.text))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "all_gather gave rank ", config.rank, " no blob of Weft's at the place of rank ", rank));
    }
    if (blob.rank != rank) {
      return absl::InvalidArgumentError(absl::StrCat("all_gather gave rank ", config.rank,
                                                     " the blob of rank ", blob.rank,
                                                     " at the place of rank ", rank));
    }
    if (blob.world_size != config.world_size) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is in a world of ",
                                                     blob.world_size, ", rank ", config.rank,
                                                     " in one of ", config.world_size));
    }
    if (blob.kind != blobs[0].kind) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " wants transport kind ",
                                                     blob.kind, ", rank 0 ", blobs[0].kind));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Bootstrap::Agree(const absl::Status& own,
                                             const std::string& text) const {
  const Blob send = BlobOf(config_, own, text);
  if (own.ok() && text.size() > sizeof(send.text)) {
    return absl::InvalidArgumentError(absl::StrCat("address '", text, "' is too long"));
  }
  std::vector<Blob> blobs(config_.world_size);
  for (Blob& blob : blobs) blob.magic = 0;
  WEFT_RETURN_IF_ERROR(base::StatusOf(
      config_.all_gather(config_.bootstrap_context, &send, blobs.data(), sizeof(Blob)),
      "all_gather"));
  WEFT_RETURN_IF_ERROR(Compare(config_, blobs));
  for (const Blob& blob : blobs) {
    if (blob.code == 0) continue;
    const std::string_view what(blob.text, blob.bytes);
    if (blob.rank == config_.rank) return own;
    return absl::Status(static_cast<absl::StatusCode>(blob.code),
                        absl::StrCat("rank ", blob.rank, ": ", std::string(what)));
  }
  return std::string(blobs[0].text, blobs[0].bytes);
}

absl::Status Bootstrap::Meet() const {
  if (config_.barrier == nullptr) return absl::OkStatus();
  return base::StatusOf(config_.barrier(config_.bootstrap_context), "barrier");
}

absl::StatusOr<std::unique_ptr<StoreServer>> ServerFor(const std::string& store) {
  constexpr std::string_view kScheme = "tcp://";
  if (store.compare(0, kScheme.size(), kScheme) != 0) return std::unique_ptr<StoreServer>();
  const std::string rest = store.substr(kScheme.size());
  const auto colon = rest.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 1) {
    return absl::InvalidArgumentError(absl::StrCat("store '", store, "' is not tcp://host:port"));
  }
  std::string host = rest.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return StoreServer::Start(host, port, /*secret=*/false);
}

}  // namespace weft::c
