// What the handles of the C ABI point to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "c/handle.h"
#include "weft/store_server.h"
#include "weft/weft.h"

// Members are destroyed from the last to the first: each after what works with it.

struct weftDevice : weft::c::Handle {
  explicit weftDevice(std::unique_ptr<weft::Device> made)
      : Handle(weft::c::Kind::kDevice), device(std::move(made)) {}
  const std::unique_ptr<weft::Device> device;
};

struct weftStream : weft::c::Handle {
  weftStream(weftDevice& on, std::unique_ptr<weft::Stream> made)
      : Handle(weft::c::Kind::kStream), device(on), stream(std::move(made)) {}
  const weft::c::InUse device;
  const std::unique_ptr<weft::Stream> stream;
};

struct weftTransport : weft::c::Handle {
  weftTransport(weftDevice& on, std::unique_ptr<weft::StoreServer> store,
                std::unique_ptr<weft::Transport> made)
      : Handle(weft::c::Kind::kTransport),
        device(on),
        server(std::move(store)),
        transport(std::move(made)) {}
  const weft::c::InUse device;
  const std::unique_ptr<weft::StoreServer> server;  // on rank 0, where ranks meet in one
  const std::unique_ptr<weft::Transport> transport;
};

struct weftRuntime : weft::c::Handle {
  weftRuntime(weftDevice& on, weftTransport& over, std::unique_ptr<weft::Runtime> made)
      : Handle(weft::c::Kind::kRuntime),
        device(on),
        in_use{weft::c::InUse(on), weft::c::InUse(over)},
        ready(on.device->CreateEvent()),
        runtime(std::move(made)) {}
  weftDevice& device;
  const weft::c::InUse in_use[2];
  const std::unique_ptr<weft::Event> ready;  // recorded anew at each Submit
  const std::unique_ptr<weft::Runtime> runtime;
  std::int32_t matrices = 0;
  bool committed = false;
  // Texts that weftRuntimeCounters() hands out; they never change after Commit.
  std::vector<weft::MatrixCounters> texts;
};

struct weftJob : weft::c::Handle {
  explicit weftJob(weft::Job submitted) : Handle(weft::c::Kind::kJob), job(std::move(submitted)) {}
  const weft::Job job;
};

struct weftState : weft::c::Handle {
  explicit weftState(weft::ExportedState exported)
      : Handle(weft::c::Kind::kState), state(std::move(exported)) {}
  const weft::ExportedState state;
};

namespace weft::c {

// Seconds of the caller's; not a number is none.
inline absl::StatusOr<absl::Duration> DurationOf(double seconds, const char* field) {
  if (seconds >= 0) return absl::Seconds(seconds);
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", seconds, ", not >= 0"));
}

}  // namespace weft::c
