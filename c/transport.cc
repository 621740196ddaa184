// Transports, and how ranks meet.
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "c/bootstrap.h"
#include "c/config.h"
#include "c/objects.h"
#include "weft/c/weft.h"

namespace weft::c {
namespace {

struct Made {
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<Transport> transport;
};

absl::StatusOr<std::unique_ptr<Transport>> Join(const weftTransportConfig_t& config,
                                                const std::string& store, Device& device) {
  const absl::Duration deadline = absl::Seconds(config.deadline_seconds);
  const bool nccl = config.kind == WEFT_TRANSPORT_NCCL ||
                    (config.kind == WEFT_TRANSPORT_AUTO && device.kind() == "cuda");
  if (config.kind == WEFT_TRANSPORT_FROM_PLUGIN) {
    return CreatePluginTransport({config.rank, config.world_size, store, deadline});
  }
  if (!nccl) {
    GlooTransportOptions options;
    options.rank = config.rank;
    options.size = config.world_size;
    options.store = store;
    options.host = config.host;
    options.deadline = deadline;
    return CreateGlooTransport(options);
  }
  NcclTransportOptions options;
  options.rank = config.rank;
  options.size = config.world_size;
  options.store = store;
  options.deadline = deadline;
  WEFT_ASSIGN_OR_RETURN(options.launch_order, EnumOf(config.launch_order, LaunchOrder::kSerialized,
                                                     "weftTransportConfig_t.launch_order"));
  options.max_ctas = config.max_ctas;
  return CreateNcclTransport(options, device);
}

absl::Status Check(const weftTransportConfig_t& config) {
  if (config.kind < WEFT_TRANSPORT_AUTO || config.kind > WEFT_TRANSPORT_FROM_PLUGIN) {
    return absl::InvalidArgumentError(absl::StrCat("weftTransportConfig_t.kind is ", config.kind,
                                                   ", not one of WEFT_TRANSPORT_*"));
  }
  if (config.world_size < 1 || config.rank < 0 || config.rank >= config.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", config.rank, " is not in a world of ", config.world_size));
  }
  if (!(config.deadline_seconds > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("weftTransportConfig_t.deadline_seconds is ",
                                                   config.deadline_seconds, ", not > 0"));
  }
  WEFT_RETURN_IF_ERROR(CheckPointer(config.host, "weftTransportConfig_t.host"));
  if (config.all_gather == nullptr && config.barrier != nullptr) {
    return absl::InvalidArgumentError("barrier is given, but no all_gather");
  }
  if (config.all_gather != nullptr && config.store != nullptr) {
    return absl::InvalidArgumentError("both all_gather and store are given; ranks meet in one way");
  }
  if (config.all_gather == nullptr && config.store == nullptr && config.world_size > 1) {
    return absl::InvalidArgumentError(absl::StrCat("a world of ", config.world_size,
                                                   " ranks needs a store, or all_gather, to meet"));
  }
  if (config.kind == WEFT_TRANSPORT_FROM_PLUGIN && config.store == nullptr) {
    return absl::InvalidArgumentError("a transport from a plug-in needs a store, in its own words");
  }
  return absl::OkStatus();
}

absl::StatusOr<Made> CreateAlone(const weftTransportConfig_t& config, Device& device) {
  Made made;
  if (config.kind == WEFT_TRANSPORT_AUTO) {
    LocalTransportOptions options;
    options.deadline = absl::Seconds(config.deadline_seconds);
    WEFT_ASSIGN_OR_RETURN(auto transports, CreateLocalTransports(options));
    made.transport = std::move(transports[0]);
    return made;
  }
  WEFT_ASSIGN_OR_RETURN(made.server, StoreServer::Start(config.host, 0));
  WEFT_ASSIGN_OR_RETURN(made.transport, Join(config, made.server->address(), device));
  return made;
}

absl::StatusOr<Made> CreateInStore(const weftTransportConfig_t& config, Device& device) {
  Made made;
  const std::string store = config.store;
  if (config.rank == 0 && config.kind != WEFT_TRANSPORT_FROM_PLUGIN) {
    WEFT_ASSIGN_OR_RETURN(made.server, ServerFor(store));
  }
  WEFT_ASSIGN_OR_RETURN(made.transport, Join(config, store, device));
  return made;
}

// The address of rank 0's server is told by one all-gather, how it went by another one, so that all
// ranks go on or none.
absl::StatusOr<Made> CreateByCallbacks(const weftTransportConfig_t& config, Device& device) {
  const Bootstrap bootstrap(config);
  Made made;
  absl::Status own;
  std::string text;
  if (config.rank == 0) {
    auto server = StoreServer::Start(config.host, 0);
    own = server.status();
    if (server.ok()) {
      made.server = *std::move(server);
      text = made.server->address();
    }
  }
  WEFT_ASSIGN_OR_RETURN(const std::string store, bootstrap.Agree(own, text));
  auto joined = Join(config, store, device);
  WEFT_RETURN_IF_ERROR(bootstrap.Agree(joined.status(), store).status());
  made.transport = *std::move(joined);
  WEFT_RETURN_IF_ERROR(bootstrap.Meet());
  return made;
}

absl::StatusOr<Made> Create(const weftTransportConfig_t& config, Device& device) {
  WEFT_RETURN_IF_ERROR(Check(config));
  if (config.all_gather != nullptr) return CreateByCallbacks(config, device);
  if (config.store != nullptr) return CreateInStore(config, device);
  return CreateAlone(config, device);
}

}  // namespace
}  // namespace weft::c

using weft::c::Call;
using weft::c::CheckPointer;
using weft::c::Kind;

weftResult_t weftTransportCreate(const weftTransportConfig_t* config, weftDevice_t device,
                                 weftTransport_t* transport) {
  return Call(device, Kind::kDevice, [&](weftDevice& on) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(transport, "transport"));
    WEFT_ASSIGN_OR_RETURN(
        const weftTransportConfig_t read,
        weft::c::ReadOptional(config, weftTransportConfig_t WEFT_TRANSPORT_CONFIG_INITIALIZER,
                              "weftTransportConfig_t"));
    WEFT_ASSIGN_OR_RETURN(weft::c::Made made, weft::c::Create(read, *on.device));
    *transport = new weftTransport(on, std::move(made.server), std::move(made.transport));
    return absl::OkStatus();
  });
}

weftResult_t weftTransportDestroy(weftTransport_t transport) {
  return weft::c::Destroy(transport, Kind::kTransport);
}

weftResult_t weftTransportAbort(weftTransport_t transport, const char* cause) {
  return Call(transport, Kind::kTransport, [&](weftTransport& object) -> absl::Status {
    object.transport->Abort(
        absl::AbortedError(cause == nullptr ? "the trainer asked for it" : cause));
    return absl::OkStatus();
  });
}

weftResult_t weftTransportGetAsyncError(weftTransport_t transport) {
  return Call(transport, Kind::kTransport,
              [&](weftTransport& object) { return object.transport->failure(); });
}
