#include "collectives/operation.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::collectives {
namespace {

std::string Text(std::string_view text) { return std::string(text); }

std::string_view KindName(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all-reduce";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAllGather:
      return "all-gather";
    case OpKind::kReduceScatter:
      return "reduce-scatter";
    case OpKind::kGather:
      return "gather";
    case OpKind::kScatter:
      return "scatter";
    case OpKind::kBarrier:
      return "barrier";
  }
  return "unknown operation";
}

absl::Status Bad(const Operation& op, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Describe(op), ": ", what));
}

bool Overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  if (a_bytes == 0 || b_bytes == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin < b_begin + static_cast<std::uintptr_t>(b_bytes) &&
         b_begin < a_begin + static_cast<std::uintptr_t>(a_bytes);
}

absl::Status CheckCounts(const Operation& op, int size) {
  const std::size_t expected = op.kind == OpKind::kBarrier ? 0 : IsPerRank(op.kind) ? size : 1;
  if (op.counts.size() != expected) {
    return Bad(op, absl::StrCat("there are ", op.counts.size(), " counts for ", size, " ranks"));
  }
  const std::int64_t limit = std::numeric_limits<std::int64_t>::max() / UnitBytes(op);
  std::int64_t total = 0;
  for (const std::int64_t count : op.counts) {
    if (count < 0) return Bad(op, absl::StrCat("count ", count, " is negative"));
    if (count > limit - total) return Bad(op, "the counts add up to more than 2^63 bytes");
    total += count;
  }
  return absl::OkStatus();
}

// What this rank reads and writes. `own_place` is where in recv send may lie, or null.
struct Extents {
  std::int64_t send = 0;
  std::int64_t recv = 0;
  const void* own_place = nullptr;
};

Extents ExtentsOf(const Operation& op, int rank) {
  const std::int64_t total = TotalBytes(op);
  const bool at_root = !IsRooted(op.kind) || rank == op.root;
  const auto* recv = static_cast<const char*>(op.recv);
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      return {total, at_root ? total : 0, op.recv};
    case OpKind::kBroadcast:
      return {0, total, nullptr};
    case OpKind::kAllGather:
    case OpKind::kGather: {
      const std::vector<std::int64_t> offsets = PartOffsets(op);
      const void* own = at_root && recv != nullptr ? recv + offsets[rank] : nullptr;
      return {op.counts[rank], at_root ? total : 0, own};
    }
    case OpKind::kReduceScatter:
      return {total, op.counts[rank] * UnitBytes(op), nullptr};
    case OpKind::kScatter:
      return {at_root ? total : 0, op.counts[rank], nullptr};
    case OpKind::kBarrier:
      return {};
  }
  return {};
}

}  // namespace

bool IsReduction(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
}

bool IsRooted(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kBroadcast || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

bool IsInwards(OpKind kind) { return kind == OpKind::kReduce || kind == OpKind::kGather; }

bool IsPerRank(OpKind kind) {
  return kind == OpKind::kAllGather || kind == OpKind::kReduceScatter || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

base::Pattern PatternOf(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return base::Pattern::kAllReduce;
    case OpKind::kReduce:
    case OpKind::kBroadcast:
      return base::Pattern::kRooted;
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
      return base::Pattern::kScattered;
    case OpKind::kGather:
    case OpKind::kScatter:
      return base::Pattern::kParts;
    case OpKind::kBarrier:
      return base::Pattern::kBarrier;
  }
  return base::Pattern::kBarrier;
}

std::int64_t UnitBytes(const Operation& op) {
  return IsReduction(op.kind) ? static_cast<std::int64_t>(SizeOf(op.dtype)) : 1;
}

std::int64_t TotalBytes(const Operation& op) {
  std::int64_t total = 0;
  for (const std::int64_t count : op.counts) total += count;
  return total * UnitBytes(op);
}

std::vector<std::int64_t> PartOffsets(const Operation& op) {
  std::vector<std::int64_t> offsets(op.counts.size() + 1, 0);
  for (std::size_t i = 0; i < op.counts.size(); ++i) {
    offsets[i + 1] = offsets[i] + op.counts[i] * UnitBytes(op);
  }
  return offsets;
}

namespace {

// `text` of the operation, then those of the joined ones.
template <typename TextOf>
std::string WithJoined(const Operation& op, const TextOf& text) {
  std::string all = text(op);
  for (const Operation& joined : op.joined) absl::StrAppend(&all, " with ", text(joined));
  return all;
}

std::string DescribeAlone(const Operation& op) {
  std::string text = Text(KindName(op.kind));
  if (!op.tag.matrix.empty()) absl::StrAppend(&text, " of matrix '", Text(op.tag.matrix), "'");
  if (!op.tag.stage.empty()) absl::StrAppend(&text, " (stage '", Text(op.tag.stage), "')");
  return text;
}

std::string SignatureAlone(const Operation& op) {
  std::string text = Text(KindName(op.kind));
  if (op.kind == OpKind::kBarrier) return text;
  absl::StrAppend(&text, " of ", absl::StrJoin(op.counts, "+"), " ",
                  IsReduction(op.kind) ? Text(Name(op.dtype)) : std::string("bytes"));
  if (IsReduction(op.kind)) {
    absl::StrAppend(&text, op.reduce == ReduceOp::kSum ? " (sum)" : " (max)");
  }
  if (IsRooted(op.kind)) absl::StrAppend(&text, " with root ", op.root);
  return text;
}

}  // namespace

std::string Describe(const Operation& op) { return WithJoined(op, DescribeAlone); }

std::string Signature(const Operation& op) { return WithJoined(op, SignatureAlone); }

bool Agree(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.counts == b.counts &&
         (!IsReduction(a.kind) || (a.dtype == b.dtype && a.reduce == b.reduce)) &&
         (!IsRooted(a.kind) || a.root == b.root) &&
         std::equal(a.joined.begin(), a.joined.end(), b.joined.begin(), b.joined.end(), Agree);
}

absl::Status CheckArguments(const Operation& op, int rank, int size) {
  if (absl::Status counts = CheckCounts(op, size); !counts.ok()) return counts;
  if (IsRooted(op.kind) && (op.root < 0 || op.root >= size)) {
    return Bad(op, absl::StrCat("root ", op.root, " is not one of ", size, " ranks"));
  }
  const Extents extents = ExtentsOf(op, rank);
  const bool broadcast = op.kind == OpKind::kBroadcast;
  if (extents.send > 0 && op.send == nullptr) return Bad(op, "send is null");
  if (extents.recv > 0 && op.recv == nullptr) {
    return Bad(op, broadcast ? "buffer is null" : "recv is null");
  }
  if (op.send != extents.own_place && Overlap(op.send, extents.send, op.recv, extents.recv)) {
    return Bad(op, "send and recv overlap in a way that the operation does not allow");
  }
  return absl::OkStatus();
}

}  // namespace weft::collectives
