#include "runtime/advice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace weft::runtime {

void Advise(const Plan& plan, const Device& device, const Transport& transport) {
  const int rank = transport.rank();
  for (const Transport::Note& note : transport.notes()) {
    if (rank == 0) base::Log(note.level, note.text);
  }
  const auto& lanes = plan.lanes[rank];
  // The caller's lane is a stream of the trainer's, and needs a queue like the others.
  const auto used =
      std::count_if(lanes.begin(), lanes.end(), [](const auto& ops) { return !ops.empty(); }) +
      (lanes[static_cast<int>(Lane::kCaller)].empty() ? 1 : 0);
  const int queues = device.hardware_queues();
  if (queues == 0 || queues >= used) return;
  base::Log(LogLevel::kWarning,
            absl::StrCat("rank ", rank, ": CUDA_DEVICE_MAX_CONNECTIONS is ", queues, ", but the ",
                         used, " streams that work side by side here (the trainer's among them) ",
                         "need a hardware queue each: they will wait for each other, and ",
                         "communication will not overlap with compute. Set ",
                         "CUDA_DEVICE_MAX_CONNECTIONS=8 before the program starts."));
}

}  // namespace weft::runtime
