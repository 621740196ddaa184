#include "collectives/nccl/transport.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/membership.h"
#include "collectives/nccl/communicator.h"
#include "collectives/nccl/launch_order.h"
#include "collectives/nccl/session.h"
#include "collectives/nccl/status.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/status.h"

namespace weft::collectives::nccl {
namespace {

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~NcclTransport() override { session_->Leave(); }

  std::string_view kind() const override { return "nccl"; }
  int rank() const override { return session_->rank(); }
  int size() const override { return session_->size(); }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      std::string name, std::vector<int> world_ranks) override {
    WEFT_ASSIGN_OR_RETURN(Membership membership,
                          session_->NewMembership(std::move(name), std::move(world_ranks)));
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Member> member, session_->Create(std::move(membership)));
    return MakeCommunicator(session_, std::move(member));
  }

  void Abort(const absl::Status& cause) override {
    WEFT_CHECK(!cause.ok()) << "an abort needs a cause";
    session_->Fail({PostKind::kCause, -1, "", AbortedBy(rank(), cause)});
  }

  absl::Status failure() override { return session_->failure(); }

  bool ended() const override { return session_->ending(); }

  std::vector<Note> notes() const override {
    const ChosenOrder& order = session_->order();
    return {{order.held_back ? LogLevel::kWarning : LogLevel::kInfo, order.note}};
  }

 private:
  const std::shared_ptr<Session> session_;
};

absl::StatusOr<LaunchFacts> Facts() {
  LaunchFacts facts;
  facts.variable = base::EnvironmentVariableAtStart("NCCL_LAUNCH_ORDER_IMPLICIT");
  WEFT_RETURN_IF_ERROR(NcclStatus(ncclGetVersion(&facts.nccl), "ncclGetVersion"));
  WEFT_RETURN_IF_ERROR(
      device::CudaStatus(cudaRuntimeGetVersion(&facts.runtime), "cudaRuntimeGetVersion", "NCCL"));
  WEFT_RETURN_IF_ERROR(
      device::CudaStatus(cudaDriverGetVersion(&facts.driver), "cudaDriverGetVersion", "NCCL"));
  return facts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(const NcclTransportOptions& options,
                                                           Device& device) {
  device::CudaDevice* cuda_device = device::CudaDevice::Of(device);
  if (cuda_device == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "NCCL needs a device of kind cuda, and this one is of kind ", std::string(device.kind())));
  }
  if (options.max_ctas < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_ctas is ", options.max_ctas, ", not >= 0"));
  }
  WEFT_ASSIGN_OR_RETURN(const LaunchFacts facts, Facts());
  WEFT_ASSIGN_OR_RETURN(ChosenOrder order, ChooseLaunchOrder(options.launch_order, facts));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Session> session,
                        Session::Open(options, *cuda_device, std::move(order)));
  return std::make_unique<NcclTransport>(std::move(session));
}

}  // namespace weft::collectives::nccl
