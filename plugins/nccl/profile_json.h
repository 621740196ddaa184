// Events as Chrome trace events: `pid` is the rank, `ts` and `dur` are microseconds of
// CLOCK_MONOTONIC.
#pragma once

#include <string>
#include <vector>

#include "plugins/nccl/recorder.h"

namespace weft::nccl_plugin {

// A JSON string literal. What is not UTF-8 becomes '?', so that the file always parses.
std::string Quote(const char* text);

// Metadata that names the process and the track of calls; each object followed by ",\n".
std::string NamesJson(const CommunicatorName& name);

// Calls, launches and kernels are slices, kernels on a track per channel; tasks and proxy
// operations are asynchronous tracks, since several are under way at a time.
std::string EventsJson(const CommunicatorName& name, std::vector<Event> events);

// The file's summary: one object.
std::string CountersJson(const CommunicatorName& name, const Counters& counters);

}  // namespace weft::nccl_plugin
