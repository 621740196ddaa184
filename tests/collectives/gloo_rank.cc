// One rank of a gloo world in a process of its own, for gloo_process_test.
//   collectives_gloo_rank STORE RANK SIZE DEADLINE_MS KIND ROOT
// Creates a communicator, runs one small all-reduce, prints "ready", waits for a line on stdin,
// then says "going", runs a large operation of KIND again and again until it fails, and prints the
// status. KIND: all-reduce, broadcast, gather.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/world.h"
#include "weft/device.h"
#include "weft/transport.h"

namespace {

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

absl::Status Enqueue(const std::string& kind, weft::Communicator& communicator,
                     weft::Stream& stream, std::vector<float>& data, int root) {
  const weft::OpTag tag{"blk.0.wq", "test"};
  const auto count = static_cast<std::int64_t>(data.size());
  if (kind == "all-reduce") {
    return communicator.AllReduce(stream, data.data(), data.data(), count, weft::DType::kF32,
                                  weft::ReduceOp::kMax, tag);
  }
  if (kind == "broadcast") return communicator.Broadcast(stream, data.data(), count * 4, root, tag);
  const std::int64_t part = count / communicator.size() * 4;
  const std::vector<std::int64_t> parts(communicator.size(), part);
  return communicator.GatherV(
      stream,
      reinterpret_cast<char*>(data.data()) + (communicator.rank() == root ? part * root : 0),
      data.data(), parts, root, tag);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  auto transport = weft::CreateGlooTransport({.rank = std::atoi(argv[2]),
                                              .size = std::atoi(argv[3]),
                                              .store = argv[1],
                                              .deadline = absl::Milliseconds(std::atoi(argv[4]))});
  if (!transport.ok()) {
    Say("cannot open: " + transport.status().ToString());
    return 1;
  }
  auto communicator =
      (*transport)->CreateCommunicator("all", weft::testing::Iota((*transport)->size()));
  if (!communicator.ok()) {
    Say("cannot create: " + communicator.status().ToString());
    return 1;
  }
  auto device = weft::CreateHostDevice();
  if (!device.ok()) {
    Say("cannot compute: " + device.status().ToString());
    return 1;
  }
  const std::unique_ptr<weft::Stream> owned_stream = (*device)->CreateStream("s");
  weft::Stream& stream = *owned_stream;
  std::vector<float> small(8, 1.0f);
  absl::Status status = Enqueue("all-reduce", **communicator, stream, small, 0);
  if (status.ok()) status = stream.Synchronize(absl::Minutes(1));
  if (!status.ok()) {
    Say("cannot start: " + status.ToString());
    return 1;
  }
  std::vector<float> large(std::size_t{8} << 20, 1.0f);
  Say("ready");
  if (std::getchar() == EOF) return 1;
  Say("going");
  bool first = true;
  while (status.ok()) {
    status = Enqueue(argv[5], **communicator, stream, large, std::atoi(argv[6]));
    if (status.ok()) status = stream.Synchronize(absl::Minutes(5));
    if (status.ok() && std::exchange(first, false)) Say("running");
  }
  Say("status: " + status.ToString());
  Say("story: " + (*transport)->failure().ToString());
  return 0;
}
