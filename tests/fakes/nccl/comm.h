// A member's handle, and what every call checks about it first.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/nccl/clique.h"

namespace weft::fakes::nccl {

enum class State {
  kInitializing,  // not all members have come
  kReady,
  kFinalized,
  kRevoked,
  kGone,  // destroyed or aborted; the handle is kept to recognize it
};

struct Progress;

// What a communicator shares with those that were split from it with splitShare: their kernels run
// one after the other, and an abort ends them all.
struct Resources {
  cudaEvent_t launched = nullptr;  // after the last kernel
  cudaStream_t stream = nullptr;   // of that
  bool used = false;
  bool aborted = false;
  std::vector<ncclComm*> users;
};

}  // namespace weft::fakes::nccl

// Guarded by nccl::Mutex(), but for what never changes.
struct ncclComm {
  std::shared_ptr<weft::fakes::nccl::Clique> clique;
  std::string name;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool split_share = false;
  int channels = 0;

  weft::fakes::nccl::State state = weft::fakes::nccl::State::kInitializing;
  ncclResult_t async_error = ncclSuccess;
  std::shared_ptr<weft::fakes::nccl::Progress> progress;  // of a call that has not ended
  std::thread::id user;                                   // inside of a call or group
  int uses = 0;

  std::int64_t next_kernel = 0;
  std::map<std::pair<int, int>, std::int64_t> next_pair;  // sends by (from, to)
  std::int64_t next_split = 0;
  std::int64_t collectives = 0;
  std::vector<weft::fakes::nccl::MemberKernel> kernels;    // not known to have ended
  std::shared_ptr<int> graphs = std::make_shared<int>(0);  // use_count() - 1 captured nodes
  std::shared_ptr<weft::fakes::nccl::Resources> resources;
  std::vector<std::optional<weft::fakes::nccl::Reduction>> ops;  // created, from ncclNumOps on
  std::vector<ncclDataType_t> op_types;
  std::map<void*, std::pair<void*, std::size_t>> registered;
};

namespace weft::fakes::nccl {

// Remembers `text` for ncclGetLastError and returns `result`.
ncclResult_t Fail(ncclResult_t result, const std::string& text);
// And reports it.
ncclResult_t Misuse(ncclResult_t result, const std::string& text);
std::string LastError();

// "communicator 'x' rank 0 (device 0)".
std::string Describe(const ncclComm& comm);

// The handle lives until Reset(). It is an object for CheckLeaks until Forget().
ncclComm* NewComm();
void Remember(ncclComm* comm);
void Forget(ncclComm* comm);

// The calling thread is in a call on the communicator while this lives: no other may be, and the
// communicator has to be in a state in which it can be called.
class Use {
 public:
  enum Kind {
    kLaunch,    // needs a communicator that is ready
    kAsk,       // also of one that is finalized or revoked
    kTeardown,  // in any state but gone, and while a call is in progress
  };
  Use(ncclComm* comm, const char* call, Kind kind);
  ~Use();
  Use(Use&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)), result_(other.result_) {}
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Use& operator=(Use&&) = delete;

  ncclResult_t result() const { return result_; }

 private:
  ncclComm* comm_ = nullptr;
  ncclResult_t result_ = ncclSuccess;
};

// Whether the handle is one, alive or not.
bool IsComm(const ncclComm* comm);

// With Mutex() held:
std::vector<std::shared_ptr<Clique>> CliquesOn(int device);
Launches& LaunchesOn(int device);
void AddClique(const std::shared_ptr<Clique>& clique);
std::int64_t NextCliqueId();
// False when the two were reported before.
bool NoteOrderFault(std::int64_t clique, std::int64_t other);
// What the members' ncclCommGetAsyncError returns, unless they have failed before.
void FailMembers(Clique& clique, ncclResult_t result);
void ForgetEnded(ncclComm& comm);

// Without: makes the device current while this lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

}  // namespace weft::fakes::nccl
