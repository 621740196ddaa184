#include "tests/fakes/nccl/comm.h"

#include <algorithm>
#include <set>

namespace weft::fakes::nccl {
namespace {

struct Registry {
  std::vector<std::unique_ptr<ncclComm>> comms;
  std::set<const ncclComm*> known;
  std::vector<std::shared_ptr<Clique>> cliques;
  std::map<int, Launches> launches;  // by device
  std::set<std::pair<std::int64_t, std::int64_t>> order_faults;
  std::int64_t next_id = 0;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

[[maybe_unused]] const bool kResets = [] {
  Engine::Get().OnReset([] {
    const std::lock_guard lock(Mutex());
    TheRegistry() = Registry{};
  });
  return true;
}();

thread_local std::string last_error;

// With Mutex() held: why the communicator cannot be called as `kind`, or empty.
struct Refusal {
  ncclResult_t result = ncclSuccess;
  std::string text;
};

Refusal WhyNot(const ncclComm& comm, Use::Kind kind) {
  if (comm.state == State::kGone) return {ncclInvalidArgument, "after its destroy or abort"};
  if (comm.uses > 0 && comm.user != std::this_thread::get_id()) {
    return {ncclInvalidUsage, "while another thread is in a call on it"};
  }
  if (kind == Use::kTeardown) return {};
  if (comm.progress || comm.state == State::kInitializing) {
    return {ncclInvalidArgument, "before its previous call returned ncclSuccess"};
  }
  if (kind == Use::kAsk) return {};
  if (comm.state == State::kFinalized) return {ncclInvalidUsage, "after ncclCommFinalize"};
  if (comm.state == State::kRevoked) return {ncclInvalidUsage, "after ncclCommRevoke"};
  if (comm.resources->aborted) {
    return {ncclInvalidUsage, "after a communicator that it shares resources with was aborted"};
  }
  return {};
}

}  // namespace

ncclResult_t Fail(ncclResult_t result, const std::string& text) {
  last_error = text;
  return result;
}

ncclResult_t Misuse(ncclResult_t result, const std::string& text) {
  Engine::Get().Report(FaultKind::kMisuse, text);
  return Fail(result, text);
}

std::string LastError() { return last_error; }

std::string Describe(const ncclComm& comm) {
  return "communicator '" + comm.name + "' rank " + std::to_string(comm.rank) + " (device " +
         std::to_string(comm.device) + ")";
}

ncclComm* NewComm() {
  auto comm = std::make_unique<ncclComm>();
  ncclComm* const handle = comm.get();
  Registry& registry = TheRegistry();
  const std::lock_guard lock(Mutex());
  registry.known.insert(handle);
  registry.comms.push_back(std::move(comm));
  return handle;
}

void Remember(ncclComm* comm) { Engine::Get().AddObject(comm, Describe(*comm)); }

void Forget(ncclComm* comm) { Engine::Get().RemoveObject(comm); }

bool IsComm(const ncclComm* comm) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(Mutex());
  return registry.known.contains(comm);
}

Use::Use(ncclComm* comm, const char* call, Kind kind) {
  if (comm == nullptr) {
    result_ = Fail(ncclInvalidArgument, std::string(call) + ": the communicator is null");
    return;
  }
  if (!IsComm(comm)) {
    result_ = Misuse(ncclInvalidArgument, std::string(call) + " on what is no communicator");
    return;
  }
  Refusal refusal;
  {
    const std::lock_guard lock(Mutex());
    refusal = WhyNot(*comm, kind);
    if (refusal.result == ncclSuccess) {
      comm->user = std::this_thread::get_id();
      ++comm->uses;
      comm_ = comm;
    }
  }
  if (refusal.result == ncclSuccess) return;
  result_ =
      Misuse(refusal.result, std::string(call) + " on " + Describe(*comm) + ' ' + refusal.text);
}

Use::~Use() {
  if (comm_ == nullptr) return;
  const std::lock_guard lock(Mutex());
  --comm_->uses;
}

std::vector<std::shared_ptr<Clique>> CliquesOn(int device) {
  std::vector<std::shared_ptr<Clique>> found;
  for (const auto& clique : TheRegistry().cliques) {
    if (clique->size() > 1 && clique->RankOn(device) >= 0) found.push_back(clique);
  }
  return found;
}

Launches& LaunchesOn(int device) { return TheRegistry().launches[device]; }

void AddClique(const std::shared_ptr<Clique>& clique) { TheRegistry().cliques.push_back(clique); }

std::int64_t NextCliqueId() { return TheRegistry().next_id++; }

bool NoteOrderFault(std::int64_t clique, std::int64_t other) {
  return TheRegistry().order_faults.insert(std::minmax(clique, other)).second;
}

void FailMembers(Clique& clique, ncclResult_t result) {
  for (ncclComm* member : clique.members) {
    if (member && member->async_error == ncclSuccess) member->async_error = result;
  }
}

void ForgetEnded(ncclComm& comm) {
  std::erase_if(comm.kernels,
                [](const MemberKernel& kernel) { return kernel.gathered->done.load(); });
}

OnDevice::OnDevice(int device) : before_(Engine::Get().CurrentDevice()) {
  if (device != before_) Engine::Get().SetCurrentDevice(device);
}

OnDevice::~OnDevice() {
  if (Engine::Get().CurrentDevice() != before_) Engine::Get().SetCurrentDevice(before_);
}

}  // namespace weft::fakes::nccl
