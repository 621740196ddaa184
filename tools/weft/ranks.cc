#include "tools/weft/ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/weft/commands.h"
#include "tools/weft/status_macros.h"
#include "weft/transport.h"

namespace weft::tool {

absl::Status RunAsThreads(const Topology& topology, absl::Duration deadline,
                          const std::function<absl::Status(Transport&)>& rank) {
  LocalTransportOptions options;
  options.topology = topology;
  options.deadline = deadline;
  WEFT_ASSIGN_OR_RETURN(auto transports, CreateLocalTransports(options));
  std::mutex mutex;
  absl::Status first;
  const auto run = [&](std::size_t index) {
    const absl::Status status = rank(*transports[index]);
    const std::lock_guard<std::mutex> lock(mutex);
    if (first.ok()) first = status;
  };
  std::vector<std::thread> others;
  absl::Status started;
  try {
    for (std::size_t index = 1; index < transports.size(); ++index) others.emplace_back(run, index);
  } catch (const std::exception& error) {
    started = absl::ResourceExhaustedError(absl::StrCat("cannot start rank ", others.size() + 1,
                                                        " of ", transports.size(),
                                                        " as a thread: ", SentenceOf(error)));
    // Those that have started would wait for the others.
    transports[0]->Abort(started);
  }
  if (started.ok()) run(0);
  for (std::thread& other : others) other.join();
  return started.ok() ? first : started;
}

absl::StatusOr<std::unique_ptr<Transport>> JoinOthers(const Options& options) {
  GlooTransportOptions gloo;
  gloo.rank = options.rank;
  gloo.size = options.world;
  gloo.store = options.store;
  gloo.deadline = absl::Seconds(options.deadline);
  return CreateGlooTransport(gloo);
}

bool IsBadStore(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status);
}

void WarnOfLinks(const Options& options, const Topology& topology) {
  const bool told = options.rank > 0 || options.error_fd >= 0;
  if (options.transport != "gloo" || told) return;
  if (topology.intra == Link{} && topology.inter == Link{} &&
      topology.root_complex_gigabytes_per_second == 0) {
    return;
  }
  Complain(absl::StrCat("warning: --transport gloo runs over the real connections; the links of ",
                        options.preset.empty() ? options.topology : "--preset " + options.preset,
                        " are not emulated"),
           0);
}

}  // namespace weft::tool
