#include "tests/fakes/nccl/call.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::fakes::nccl {
namespace {

const char* Name(Function function) {
  switch (function) {
    case Function::kReduce:
      return "reduce";
    case Function::kBroadcast:
      return "broadcast";
    case Function::kAllGather:
      return "all-gather";
    case Function::kReduceScatter:
      return "reduce-scatter";
    case Function::kAllReduce:
      return "all-reduce";
    case Function::kSend:
      return "send";
    case Function::kRecv:
      return "recv";
  }
  return "invalid";
}

std::string OpText(const Reduction& reduction) {
  constexpr const char* kOps[] = {"sum", "prod", "max", "min"};
  return reduction.scaled ? "scaled sum" : kOps[reduction.op];
}

bool Agree(const Call& a, const Call& b) {
  if (a.function != b.function || a.count != b.count || a.type != b.type) return false;
  if (Reduces(a) &&
      (a.reduction.op != b.reduction.op || a.reduction.scaled != b.reduction.scaled)) {
    return false;
  }
  const bool rooted = a.function == Function::kReduce || a.function == Function::kBroadcast;
  return !rooted || a.root == b.root;
}

std::size_t Bytes(const Call& call) { return call.count * SizeOf(call.type); }

char* Block(void* base, int place, std::size_t bytes) {
  return static_cast<char*>(base) + static_cast<std::size_t>(place) * bytes;
}

std::vector<const void*> Sends(const std::vector<Call>& calls, std::size_t offset) {
  std::vector<const void*> sends;
  sends.reserve(calls.size());
  for (const Call& call : calls) sends.push_back(static_cast<const char*>(call.send) + offset);
  return sends;
}

std::vector<Reduction> Reductions(const std::vector<Call>& calls) {
  std::vector<Reduction> reductions;
  reductions.reserve(calls.size());
  for (const Call& call : calls) reductions.push_back(call.reduction);
  return reductions;
}

void RunAllReduce(const std::vector<Call>& calls, SumOrder order) {
  const int ranks = static_cast<int>(calls.size());
  const std::size_t count = calls[0].count, size = SizeOf(calls[0].type);
  std::vector<char> result(count * size);
  const std::vector<Reduction> reductions = Reductions(calls);
  std::size_t begin = 0;
  for (int chunk = 0; chunk < ranks; ++chunk) {
    const std::size_t end =
        count * static_cast<std::size_t>(chunk + 1) / static_cast<std::size_t>(ranks);
    Reduce(calls[0].type, order, (chunk + 1) % ranks, end - begin, Sends(calls, begin * size),
           reductions, result.data() + begin * size);
    begin = end;
  }
  for (const Call& call : calls) std::memcpy(call.recv, result.data(), result.size());
}

void RunReduceScatter(const std::vector<Call>& calls, SumOrder order) {
  const int ranks = static_cast<int>(calls.size());
  const std::size_t bytes = Bytes(calls[0]);
  const std::vector<Reduction> reductions = Reductions(calls);
  // Nothing is written before all has been read: a result may lie inside its own member's input.
  std::vector<char> result(bytes * calls.size());
  for (int rank = 0; rank < ranks; ++rank) {
    Reduce(calls[0].type, order, (rank + 1) % ranks, calls[0].count,
           Sends(calls, static_cast<std::size_t>(rank) * bytes), reductions,
           Block(result.data(), rank, bytes));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    std::memcpy(calls[static_cast<std::size_t>(rank)].recv, Block(result.data(), rank, bytes),
                bytes);
  }
}

void RunAllGather(const std::vector<Call>& calls) {
  const std::size_t bytes = Bytes(calls[0]);
  std::vector<char> result(bytes * calls.size());
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    std::memcpy(result.data() + rank * bytes, calls[rank].send, bytes);
  }
  for (const Call& call : calls) std::memcpy(call.recv, result.data(), result.size());
}

}  // namespace

bool IsPointToPoint(const Call& call) {
  return call.function == Function::kSend || call.function == Function::kRecv;
}

bool Reduces(const Call& call) {
  return call.function == Function::kReduce || call.function == Function::kReduceScatter ||
         call.function == Function::kAllReduce;
}

std::string Text(const Call& call) {
  std::string text =
      std::string(Name(call.function)) + ' ' + std::to_string(call.count) + ' ' + Name(call.type);
  if (Reduces(call)) text += " (" + OpText(call.reduction) + ')';
  switch (call.function) {
    case Function::kReduce:
    case Function::kSend:
      return text + " to rank " + std::to_string(call.root);
    case Function::kBroadcast:
    case Function::kRecv:
      return text + " from rank " + std::to_string(call.root);
    default:
      return text;
  }
}

std::string Text(const std::vector<Call>& calls) {
  std::string text;
  for (const Call& call : calls) text += (text.empty() ? "" : " + ") + Text(call);
  return text;
}

bool Agree(const std::vector<Call>& a, const std::vector<Call>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Call& x, const Call& y) { return Agree(x, y); });
}

const char* MissingBuffer(const Call& call, int rank) {
  const bool root = call.root == rank;
  const bool sends =
      call.function == Function::kBroadcast ? root : call.function != Function::kRecv;
  const bool receives =
      call.function == Function::kReduce ? root : call.function != Function::kSend;
  if (sends && call.send == nullptr) return "send buffer";
  if (receives && call.recv == nullptr) return "receive buffer";
  return nullptr;
}

void AddAccesses(const Call& call, int rank, int ranks, std::vector<Access>& accesses) {
  const std::size_t bytes = Bytes(call);
  const auto read = [&](const void* data, std::size_t n) { accesses.push_back({data, n, false}); };
  const auto write = [&](void* data, std::size_t n) { accesses.push_back({data, n, true}); };
  if (Reduces(call) && call.reduction.device_scalar) {
    read(call.reduction.device_scalar, SizeOf(call.type));
  }
  switch (call.function) {
    case Function::kReduce:
      read(call.send, bytes);
      if (rank == call.root) write(call.recv, bytes);
      return;
    case Function::kBroadcast:
      if (rank == call.root) read(call.send, bytes);
      if (rank != call.root || call.recv != call.send) write(call.recv, bytes);
      return;
    case Function::kAllGather:
      read(call.send, bytes);
      for (int from = 0; from < ranks; ++from) {
        char* const block = Block(call.recv, from, bytes);
        if (from != rank || block != call.send) write(block, bytes);
      }
      return;
    case Function::kReduceScatter:
      read(call.send, bytes * static_cast<std::size_t>(ranks));
      write(call.recv, bytes);
      return;
    case Function::kAllReduce:
      read(call.send, bytes);
      write(call.recv, bytes);
      return;
    case Function::kSend:
      return read(call.send, bytes);
    case Function::kRecv:
      return write(call.recv, bytes);
  }
}

void Run(const std::vector<Call>& calls, SumOrder order) {
  const Call& any = calls[0];
  const auto root = static_cast<std::size_t>(any.root);
  switch (any.function) {
    case Function::kReduce:
      Reduce(any.type, order, (any.root + 1) % static_cast<int>(calls.size()), any.count,
             Sends(calls, 0), Reductions(calls), calls[root].recv);
      return;
    case Function::kBroadcast:
      for (const Call& call : calls) std::memmove(call.recv, calls[root].send, Bytes(call));
      return;
    case Function::kAllGather:
      return RunAllGather(calls);
    case Function::kReduceScatter:
      return RunReduceScatter(calls, order);
    case Function::kAllReduce:
      return RunAllReduce(calls, order);
    case Function::kSend:
    case Function::kRecv:
      return;  // pairs, not members: see PairUp()
  }
}

void RunAlone(const Call& call) {
  if (Reduces(call)) {
    Reduce(call.type, SumOrder::kAscending, 0, call.count, {call.send}, {call.reduction},
           call.recv);
  } else {
    std::memmove(call.recv, call.send, Bytes(call));
  }
}

}  // namespace weft::fakes::nccl
