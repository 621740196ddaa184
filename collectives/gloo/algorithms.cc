#include "collectives/gloo/algorithms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "collectives/reduce.h"
#include "collectives/store.h"

namespace weft::collectives::gloo {
namespace {

using Result = std::optional<Wire::Trouble>;

// Up to here a reduction goes to the root, and a broadcast down a tree, in one piece.
constexpr std::int64_t kSmallBytes = std::int64_t{64} * 1024;
constexpr std::int64_t kSegmentBytes = std::int64_t{256} * 1024;

// Tags of one operation.
enum Phase : std::uint64_t { kHeader, kPayload, kCollect, kPhases };

// What a member is about to do. Exchanged as bytes between machines of the same kind.
struct Header {
  std::uint64_t sequence;
  std::uint64_t fingerprint;   // of the signature
  std::array<char, 240> text;  // for people, zero-terminated
};

char* At(void* base, std::int64_t offset) {
  return offset == 0 ? static_cast<char*>(base) : static_cast<char*>(base) + offset;
}
const char* At(const void* base, std::int64_t offset) {
  return offset == 0 ? static_cast<const char*>(base) : static_cast<const char*>(base) + offset;
}

void CopyBytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

class Performer {
 public:
  Performer(Exchange& exchange, const Operation& op)
      : exchange_(exchange),
        op_(op),
        rank_(exchange.membership.rank),
        size_(exchange.membership.size()),
        headers_(size_),
        wire_(exchange.session, exchange.connections, exchange.interrupted) {}

  absl::StatusOr<Result> Perform() {
    if (Result trouble = ExchangeHeaders()) return trouble;
    if (absl::Status agreed = CheckAgreement(); !agreed.ok()) return agreed;
    return Payload();
  }

 private:
  std::uint64_t Tag(Phase phase) const { return exchange_.sequence * kPhases + phase; }
  bool is_root() const { return rank_ == op_.root; }

  Result ExchangeHeaders() {
    const std::string signature = Signature(op_);
    Header& own = headers_[rank_];
    own = Header{exchange_.sequence, Fingerprint(signature), {}};
    const std::string text = absl::StrCat(Describe(op_), " as ", signature);
    text.copy(own.text.data(), own.text.size() - 1);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      wire_.Recv(peer, Tag(kHeader), &headers_[peer], sizeof(Header));
      wire_.Send(peer, Tag(kHeader), &own, sizeof(Header));
    }
    return wire_.Wait(/*one_limit=*/true);
  }

  absl::Status CheckAgreement() const {
    for (int r = 1; r < size_; ++r) {
      if (headers_[r].fingerprint == headers_[0].fingerprint) continue;
      const auto told = [&](int member) {
        return absl::StrCat("rank ", exchange_.membership.world_ranks[member], " came to ",
                            headers_[member].text.data());
      };
      return absl::InvalidArgumentError(
          absl::StrCat("its members disagree: ", told(0), ", ", told(r)));
    }
    return absl::OkStatus();
  }

  Result Payload() {
    if (!op_.joined.empty()) return Together();
    switch (op_.kind) {
      case OpKind::kAllReduce:
        return AllReduce();
      case OpKind::kReduce:
        return Reduce();
      case OpKind::kBroadcast:
        return op_.counts[0] <= kSmallBytes ? TreeBroadcast() : ChainBroadcast();
      case OpKind::kAllGather:
        return AllGather();
      case OpKind::kReduceScatter:
        return ReduceParts(PartOffsets(op_), op_.recv);
      case OpKind::kGather:
        return Collect(op_.send, op_.recv, PartOffsets(op_), kPayload);
      case OpKind::kScatter:
        return Scatter();
      case OpKind::kBarrier:
        return std::nullopt;
    }
    return std::nullopt;
  }

  // Byte offsets of equal shares of the vector, one per rank.
  std::vector<std::int64_t> Shares() const {
    std::vector<std::int64_t> offsets(size_ + 1);
    for (int r = 0; r <= size_; ++r) offsets[r] = op_.counts[0] * r / size_ * UnitBytes(op_);
    return offsets;
  }

  std::byte* Scratch(std::int64_t bytes) {
    if (static_cast<std::int64_t>(exchange_.scratch.size()) < bytes) {
      exchange_.scratch.resize(static_cast<std::size_t>(bytes));
    }
    return exchange_.scratch.data();
  }

  // Every rank sends each part of `send` to its rank and sums what it gets for its own into `to`,
  // which may be that part of send itself.
  Result ReduceParts(const std::vector<std::int64_t>& offsets, void* to) {
    const std::int64_t own_bytes = offsets[rank_ + 1] - offsets[rank_];
    std::byte* scratch = Scratch(own_bytes * size_);
    std::vector<const void*> sources(size_);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) {
        sources[peer] = At(op_.send, offsets[rank_]);
        continue;
      }
      std::byte* place = scratch + own_bytes * peer;
      sources[peer] = place;
      wire_.Recv(peer, Tag(kPayload), place, own_bytes);
    }
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      wire_.Send(peer, Tag(kPayload), At(op_.send, offsets[peer]),
                 offsets[peer + 1] - offsets[peer]);
    }
    if (Result trouble = wire_.Wait()) return trouble;
    if (own_bytes > 0) {
      ReduceSources(sources, to, own_bytes / UnitBytes(op_), op_.dtype, op_.reduce);
    }
    return std::nullopt;
  }

  Result AllReduce() {
    const std::vector<std::int64_t> offsets = Shares();
    if (Result trouble = ReduceParts(offsets, At(op_.recv, offsets[rank_]))) return trouble;
    return Spread(op_.recv, offsets, kCollect);
  }

  Result Reduce() {
    if (TotalBytes(op_) <= kSmallBytes) {
      // All parts but the root's are empty.
      std::vector<std::int64_t> offsets(size_ + 1, 0);
      std::fill(offsets.begin() + op_.root + 1, offsets.end(), TotalBytes(op_));
      return ReduceParts(offsets, op_.recv);
    }
    const std::vector<std::int64_t> offsets = Shares();
    const std::int64_t own_bytes = offsets[rank_ + 1] - offsets[rank_];
    if (is_root()) {
      if (Result trouble = ReduceParts(offsets, At(op_.recv, offsets[rank_]))) return trouble;
      return Collect(nullptr, op_.recv, offsets, kCollect);
    }
    // The sum goes over this rank's own slot of the scratch memory, which nobody sends to.
    Scratch(own_bytes * size_);
    std::byte* sum = exchange_.scratch.data() + own_bytes * rank_;
    if (Result trouble = ReduceParts(offsets, sum)) return trouble;
    return Collect(sum, nullptr, offsets, kCollect);
  }

  // Every rank's own part of `data`, which is in place, reaches all others.
  Result Spread(void* data, const std::vector<std::int64_t>& offsets, Phase phase) {
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ + size_ - step) % size_;
      wire_.Recv(from, Tag(phase), At(data, offsets[from]), offsets[from + 1] - offsets[from]);
    }
    for (int step = 1; step < size_; ++step) {
      wire_.Send((rank_ + step) % size_, Tag(phase), At(data, offsets[rank_]),
                 offsets[rank_ + 1] - offsets[rank_]);
    }
    return wire_.Wait();
  }

  Result AllGather() {
    const std::vector<std::int64_t> offsets = PartOffsets(op_);
    CopyBytes(At(op_.recv, offsets[rank_]), op_.send, op_.counts[rank_]);
    return Spread(op_.recv, offsets, kPayload);
  }

  // The parts of all ranks go to the root; its own only when `own` is not null.
  Result Collect(const void* own, void* to, const std::vector<std::int64_t>& offsets, Phase phase) {
    const std::int64_t own_bytes = offsets[rank_ + 1] - offsets[rank_];
    if (!is_root()) {
      wire_.Send(op_.root, Tag(phase), own, own_bytes);
      return wire_.Wait();
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      wire_.Recv(peer, Tag(phase), At(to, offsets[peer]), offsets[peer + 1] - offsets[peer]);
    }
    if (own != nullptr) CopyBytes(At(to, offsets[rank_]), own, own_bytes);
    return wire_.Wait();
  }

  Result Scatter() {
    const std::vector<std::int64_t> offsets = PartOffsets(op_);
    if (!is_root()) {
      wire_.Recv(op_.root, Tag(kPayload), op_.recv, op_.counts[rank_]);
      return wire_.Wait();
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) {
        wire_.Send(peer, Tag(kPayload), At(op_.send, offsets[peer]), op_.counts[peer]);
      }
    }
    CopyBytes(op_.recv, At(op_.send, offsets[rank_]), op_.counts[rank_]);
    return wire_.Wait();
  }

  // All messages of rooted operations at once, straight between the root and the others: in a group
  // of two, which this is for, there is no shorter way.
  Result Together() {
    std::vector<std::vector<std::int64_t>> offsets;  // by operation; of the whole for single counts
    std::vector<std::byte*> received;                // reductions, on their root: by operation
    std::int64_t scratch_bytes = 0;
    for (std::size_t place = 0; place < PartsOf(op_); ++place) {
      const Operation& op = PartOf(op_, place);
      offsets.push_back(PartOffsets(op));
      scratch_bytes += BytesReceived(op);
    }
    std::byte* scratch = Scratch(scratch_bytes);
    for (std::size_t place = 0; place < PartsOf(op_); ++place) {
      const Operation& op = PartOf(op_, place);
      received.push_back(scratch);
      scratch += BytesReceived(op);
      for (int peer = 0; peer < size_; ++peer) {
        if (peer != rank_) PostStraight(op, offsets[place], peer, received[place]);
      }
    }
    if (Result trouble = wire_.Wait()) return trouble;
    for (std::size_t place = 0; place < PartsOf(op_); ++place) {
      FinishStraight(PartOf(op_, place), offsets[place], received[place]);
    }
    return std::nullopt;
  }

  // Of the other members' vectors, on a reduction's root; rounded up so that the next operation's
  // lie as their type asks.
  std::int64_t BytesReceived(const Operation& op) const {
    constexpr std::int64_t kAlignment = 16;
    if (op.kind != OpKind::kReduce || rank_ != op.root) return 0;
    return (TotalBytes(op) * size_ + kAlignment - 1) / kAlignment * kAlignment;
  }

  void PostStraight(const Operation& op, const std::vector<std::int64_t>& offsets, int peer,
                    std::byte* received) {
    const bool by_parts = IsPerRank(op.kind);
    const bool at_root = rank_ == op.root;
    if (!at_root && peer != op.root) return;
    const int far = at_root ? peer : rank_;  // the member at the other end of the root's message
    const std::int64_t offset = by_parts ? offsets[far] : 0;
    const std::int64_t bytes = by_parts ? op.counts[far] : TotalBytes(op);
    const void* whole = op.kind == OpKind::kBroadcast ? op.recv : op.send;
    if (at_root == IsInwards(op.kind)) {
      void* to = op.recv;
      if (at_root) to = by_parts ? At(op.recv, offset) : At(received, TotalBytes(op) * peer);
      wire_.Recv(peer, Tag(kPayload), to, bytes);
    } else {
      wire_.Send(peer, Tag(kPayload), at_root ? At(whole, offset) : whole, bytes);
    }
  }

  // What stays on the root, and the sums.
  void FinishStraight(const Operation& op, const std::vector<std::int64_t>& offsets,
                      const std::byte* received) {
    if (rank_ != op.root || op.kind == OpKind::kBroadcast) return;
    if (op.kind == OpKind::kGather) {
      CopyBytes(At(op.recv, offsets[rank_]), op.send, op.counts[rank_]);
    } else if (op.kind == OpKind::kScatter) {
      CopyBytes(op.recv, At(op.send, offsets[rank_]), op.counts[rank_]);
    } else if (op.counts[0] > 0) {
      std::vector<const void*> sources(size_);
      for (int peer = 0; peer < size_; ++peer) {
        sources[peer] = peer == rank_ ? op.send : received + TotalBytes(op) * peer;
      }
      ReduceSources(sources, op.recv, op.counts[0], op.dtype, op.reduce);
    }
  }

  // Ranks counted from the root; each receives from the rank without its highest bit.
  Result TreeBroadcast() {
    const int place = (rank_ - op_.root + size_) % size_;
    const auto at = [&](int p) { return (p + op_.root) % size_; };
    int bit = 1;
    while (bit <= place) bit *= 2;
    if (place > 0) {
      wire_.Recv(at(place - bit / 2), Tag(kPayload), op_.recv, op_.counts[0]);
      if (Result trouble = wire_.Wait()) return trouble;
    }
    for (; place + bit < size_; bit *= 2) {
      wire_.Send(at(place + bit), Tag(kPayload), op_.recv, op_.counts[0]);
    }
    return wire_.Wait();
  }

  // From rank to rank in segments, each passed on as it comes.
  Result ChainBroadcast() {
    const int place = (rank_ - op_.root + size_) % size_;
    const int previous = (rank_ + size_ - 1) % size_;
    const int next = (rank_ + 1) % size_;
    const auto each_segment = [&](const auto& body) {
      for (std::int64_t at = 0; at < op_.counts[0]; at += kSegmentBytes) {
        body(At(op_.recv, at), std::min(kSegmentBytes, op_.counts[0] - at));
      }
    };
    if (place > 0) {
      each_segment([&](char* data, std::int64_t bytes) {
        wire_.Recv(previous, Tag(kPayload), data, bytes);
      });
    }
    Result trouble;
    each_segment([&](char* data, std::int64_t bytes) {
      if (!trouble && place > 0) trouble = wire_.WaitForOldest(previous);
      if (!trouble && place + 1 < size_) wire_.Send(next, Tag(kPayload), data, bytes);
    });
    return trouble ? trouble : wire_.Wait();
  }

  Exchange& exchange_;
  const Operation& op_;
  const int rank_;
  const int size_;
  std::vector<Header> headers_;  // outlives the messages that fill it
  Wire wire_;
};

}  // namespace

absl::StatusOr<std::optional<Wire::Trouble>> Perform(Exchange& exchange, const Operation& op) {
  return Performer(exchange, op).Perform();
}

}  // namespace weft::collectives::gloo
