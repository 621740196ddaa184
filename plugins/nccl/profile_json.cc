#include "plugins/nccl/profile_json.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>

namespace weft::nccl_plugin {
namespace {

// Weft's own tracks have small numbers; a communicator has a thousand of its own.
int CallsTrack(const CommunicatorName& name) { return 1000 * (name.number + 1); }
int ChannelTrack(const CommunicatorName& name, int channel) {
  return CallsTrack(name) + 1 + channel;
}

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string Micros(std::int64_t ns) {
  return Format("%lld.%03d", static_cast<long long>(ns / 1000), static_cast<int>(ns % 1000));
}

// The length of a valid UTF-8 sequence at `text`, or 0.
std::size_t SequenceLength(const unsigned char* text) {
  const unsigned char lead = text[0];
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  if (length == 3 && ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f)))
    return 0;
  if (length == 4 && ((lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f)))
    return 0;
  return length;
}

struct DatatypeSize {
  const char* name;
  std::uint64_t bytes;
};

// 0: not known.
std::uint64_t SizeOf(const char* datatype) {
  constexpr DatatypeSize kSizes[] = {
      {"ncclInt8", 1},    {"ncclUint8", 1},    {"ncclInt32", 4},      {"ncclUint32", 4},
      {"ncclInt64", 8},   {"ncclUint64", 8},   {"ncclFloat16", 2},    {"ncclFloat32", 4},
      {"ncclFloat64", 8}, {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1}};
  if (datatype == nullptr) return 0;
  for (const DatatypeSize& known : kSizes) {
    if (std::strcmp(datatype, known.name) == 0) return known.bytes;
  }
  return 0;
}

// Builds `"key":value` pairs.
class Arguments {
 public:
  void Text(const char* key, const char* value) {
    if (value != nullptr) Add(key, Quote(value));
  }
  void Number(const char* key, std::int64_t value) { Add(key, std::to_string(value)); }
  void Count(const char* key, std::uint64_t value) { Add(key, std::to_string(value)); }
  void True(const char* key) { Add(key, "true"); }
  void Raw(const char* key, const std::string& value) { Add(key, value); }
  std::string Take() const { return "{" + text_ + "}"; }

 private:
  void Add(const char* key, const std::string& value) {
    if (!text_.empty()) text_ += ',';
    text_ += '"';
    text_ += key;
    text_ += "\":";
    text_ += value;
  }
  std::string text_;
};

const char* FunctionOf(const Event& event) {
  return event.function == nullptr ? "?" : event.function;
}

std::string NameOf(const Event& event) {
  std::string name;
  switch (event.kind) {
    case Kind::kGroupApi:
      name = "group";
      break;
    case Kind::kCallApi:
      name = std::string("call ") + FunctionOf(event);
      break;
    case Kind::kKernelLaunch:
      name = "launch";
      break;
    case Kind::kTask:
      name = FunctionOf(event);
      break;
    case Kind::kProxyOp:
      name = Format(event.is_send ? "send to %d" : "receive from %d", event.peer);
      break;
    case Kind::kKernel:
      name = "kernel";
      break;
  }
  if (event.job.known && event.job.name[0] != 0) name += std::string(" ") + event.job.name;
  return name;
}

// Where the end of a task was seen.
const char* CompletionOf(const Event& event) {
  if (event.kernels_stopped > 0) return "kernel";
  return event.children > 0 ? "proxy" : "enqueue";
}

std::string ArgumentsOf(const CommunicatorName& name, const Event& event) {
  Arguments arguments;
  if (event.job.known) {
    arguments.Number("step", event.job.step);
    arguments.Number("op", event.job.op);
    arguments.Number("matrix_index", event.job.matrix);
    if (event.job.name[0] != 0) arguments.Text("matrix", event.job.name);
  } else {
    arguments.True("unattributed");
  }
  arguments.Text("communicator", name.name.empty() ? nullptr : name.name.c_str());
  if (event.kind == Kind::kCallApi || event.kind == Kind::kTask) {
    arguments.Text("function", FunctionOf(event));
    const std::uint64_t size = SizeOf(event.datatype);
    if (size != 0) arguments.Count("bytes", size * event.count);
    arguments.Text("datatype", event.datatype);
    arguments.Number(event.is_p2p ? "peer" : "root", event.is_p2p ? event.peer : event.root);
    if (event.captured) arguments.True("captured");
  }
  if (event.kind == Kind::kTask) {
    arguments.Text("algorithm", event.algorithm);
    arguments.Text("protocol", event.protocol);
    arguments.Number("channels", event.channels);
    arguments.Count("sequence", event.sequence);
    if (event.replay > 0) arguments.Number("replay", event.replay);
    arguments.Raw("enqueue_us", Micros(event.stop_ns == 0 ? 0 : event.stop_ns - event.begin_ns));
    arguments.Text("completion", CompletionOf(event));
  }
  if (event.kind == Kind::kGroupApi) {
    arguments.Number("depth", event.depth);
    if (event.mark_ns != 0) arguments.Raw("end_called_us", Micros(event.mark_ns - event.begin_ns));
  }
  if (event.kind == Kind::kProxyOp) {
    arguments.Number("channel", event.channel);
    arguments.Number("steps", event.steps);
    arguments.Number("chunk_bytes", event.chunk_bytes);
    if (event.mark_ns != 0) arguments.Raw("waited_us", Micros(event.mark_ns - event.begin_ns));
  }
  if (event.kind == Kind::kKernel) {
    arguments.Number("channel", event.channel);
    if (event.gpu_begin_ns != 0) arguments.Count("gpu_begin_ns", event.gpu_begin_ns);
    if (event.gpu_end_ns != 0) arguments.Count("gpu_end_ns", event.gpu_end_ns);
  }
  if (!event.stopped || event.pending_children > 0) arguments.True("unfinished");
  return arguments.Take();
}

std::string Head(const CommunicatorName& name, const char* phase, int track, std::int64_t ns,
                 const std::string& title) {
  return Format("{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", phase, name.process, track) +
         Micros(ns) + ",\"name\":" + Quote(title.c_str());
}

// Tracks that viewers keep apart by `id2` instead of by nesting.
std::string AsyncJson(const CommunicatorName& name, const Event& event, std::size_t number) {
  const std::string id = Format(",\"cat\":\"%s\",\"id2\":{\"local\":\"%016llx.%d.%lld.%zu\"}",
                                event.kind == Kind::kTask ? "nccl" : "nccl proxy",
                                static_cast<unsigned long long>(name.id), name.rank,
                                static_cast<long long>(event.begin_ns), number);
  const std::string title = NameOf(event);
  const int track = CallsTrack(name);
  return Head(name, "b", track, event.begin_ns, title) + id +
         ",\"args\":" + ArgumentsOf(name, event) + "},\n" +
         Head(name, "e", track, event.end_ns, title) + id + "},\n";
}

std::string SliceJson(const CommunicatorName& name, const Event& event, int track,
                      std::int64_t begin_ns, std::int64_t duration_ns) {
  return Head(name, "X", track, begin_ns, NameOf(event)) + ",\"dur\":" + Micros(duration_ns) +
         ",\"args\":" + ArgumentsOf(name, event) + "},\n";
}

std::string TrackName(const CommunicatorName& name, int track, const std::string& title) {
  return Format("{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":",
                name.process, track) +
         Quote(title.c_str()) + "}},\n";
}

std::string Label(const CommunicatorName& name) {
  return name.name.empty() ? Format("%016llx", static_cast<unsigned long long>(name.id))
                           : name.name;
}

}  // namespace

std::string Quote(const char* text) {
  std::string quoted = "\"";
  for (const auto* at = reinterpret_cast<const unsigned char*>(text); *at != 0;) {
    const std::size_t length = SequenceLength(at);
    if (length > 1) {
      quoted.append(reinterpret_cast<const char*>(at), length);
    } else if (length == 0) {
      quoted += '?';
    } else if (*at < 0x20) {
      quoted += Format("\\u%04x", *at);
    } else {
      if (*at == '"' || *at == '\\') quoted += '\\';
      quoted += static_cast<char>(*at);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return quoted + "\"";
}

std::string NamesJson(const CommunicatorName& name) {
  return Format(
             "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\","
             "\"args\":{\"name\":\"rank %d\"}},\n",
             name.process, name.process) +
         TrackName(name, CallsTrack(name), "nccl " + Label(name) + " calls");
}

std::string EventsJson(const CommunicatorName& name, std::vector<Event> events) {
  // Outer slices before inner ones that begin with them.
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.kind < b.kind;
  });
  std::string text;
  std::map<int, std::int64_t> channel_end;
  std::size_t number = 0;
  for (const Event& event : events) {
    ++number;
    if (event.kind == Kind::kTask || event.kind == Kind::kProxyOp) {
      text += AsyncJson(name, event, number);
      continue;
    }
    std::int64_t begin = event.begin_ns;
    std::int64_t duration = event.stopped ? event.stop_ns - event.begin_ns : 0;
    int track = CallsTrack(name);
    if (event.kind == Kind::kKernel) {
      track = ChannelTrack(name, event.channel);
      const auto [last, is_new] = channel_end.try_emplace(track, 0);
      if (is_new) {
        text +=
            TrackName(name, track, "nccl " + Label(name) + Format(" channel %d", event.channel));
      }
      if (event.gpu_begin_ns != 0 && event.gpu_end_ns > event.gpu_begin_ns) {
        duration = static_cast<std::int64_t>(event.gpu_end_ns - event.gpu_begin_ns);
      }
      // The host sees a start late, by more or less: a channel runs its kernels one after another.
      begin = std::max(begin, last->second);
      last->second = begin + duration;
    }
    text += SliceJson(name, event, track, begin, duration);
  }
  return text;
}

std::string CountersJson(const CommunicatorName& name, const Counters& counters) {
  Arguments arguments;
  arguments.Text("source", "weft nccl profiler");
  arguments.Text("clock", "CLOCK_MONOTONIC");
  arguments.Text("communicator", name.name.c_str());
  arguments.Raw("communicator_id", Format("\"%016llx\"", static_cast<unsigned long long>(name.id)));
  arguments.Number("communicator_rank", name.rank);
  arguments.Number("ranks", name.ranks);
  arguments.Number("nodes", name.nodes);
  arguments.Count("events", counters.events);
  arguments.Count("dropped", counters.dropped);
  arguments.Count("unattributed", counters.unattributed);
  arguments.Count("stale", counters.stale);
  arguments.Count("repeated_stops", counters.repeated);
  arguments.Count("foreign", counters.foreign);
  arguments.Count("unfinished", counters.unfinished);
  return arguments.Take();
}

}  // namespace weft::nccl_plugin
