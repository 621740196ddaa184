#include "tools/weft/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

absl::Status Failure(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

// A fresh directory that goes with its contents.
class TemporaryDirectory {
 public:
  absl::Status Create() {
    std::error_code error;
    const auto base = std::filesystem::temp_directory_path(error);
    if (error) return absl::InternalError("no directory for temporary files");
    std::string pattern = (base / "weft-store-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) return Failure("cannot create a temporary directory");
    path_ = pattern;
    return absl::OkStatus();
  }
  ~TemporaryDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Blocks the signals that end a run and makes them readable; undone on destruction.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&mask_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&mask_, number);
    ::pthread_sigmask(SIG_BLOCK, &mask_, &before_);
    descriptor_ = ::signalfd(-1, &mask_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() {
    if (descriptor_ >= 0) ::close(descriptor_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }
  const sigset_t& before() const { return before_; }
  // The signal that has come, or 0.
  int Read() const {
    signalfd_siginfo info;
    return ::read(descriptor_, &info, sizeof(info)) == sizeof(info)
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  sigset_t mask_;
  sigset_t before_;
  int descriptor_ = -1;
};

struct Child {
  pid_t pid = -1;
  int errors = -1;  // what the rank writes to --error-fd; end of file when it has ended
  std::string text;
};

// Never returns; 127 when the program cannot be run.
[[noreturn]] void Become(std::vector<std::string> arguments, pid_t parent, const sigset_t& mask,
                         int error_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before the line above took effect.
  if (::getppid() != parent) ::_exit(127);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::fcntl(error_fd, F_SETFD, 0);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  ::_exit(127);
}

absl::StatusOr<Child> Start(const std::vector<std::string>& arguments, int rank, int world,
                            const std::string& store, const Signals& signals) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Failure("cannot create a pipe");
  std::vector<std::string> all = {"weft"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--rank", absl::StrCat(rank)},
                                                        {"--world", absl::StrCat(world)},
                                                        {"--store", store},
                                                        {"--error-fd", absl::StrCat(ends[1])}}) {
    all.push_back(absl::StrCat(option, "=", value));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Become(std::move(all), parent, signals.before(), ends[1]);
  const int error = errno;
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start rank ", rank));
  }
  return Child{pid, ends[0], ""};
}

// Waits for one rank whose pipe has closed; its exit code, 128 + signal where one ended it.
int Reap(Child& child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  child.pid = -1;
  ::close(child.errors);
  child.errors = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Watcher {
 public:
  explicit Watcher(std::vector<Child>& children) : children_(children) {}

  LaunchOutcome Watch(const Signals& signals) {
    std::size_t running = children_.size();
    while (running > 0) {
      std::vector<pollfd> polled = {{signals.descriptor(), POLLIN, 0}};
      for (const Child& child : children_) polled.push_back({child.errors, POLLIN, 0});
      if (::poll(polled.data(), polled.size(), -1) < 0) continue;
      if (polled[0].revents != 0) {
        if (const int number = signals.Read(); number != 0) {
          Fail(128 + number, absl::StrCat("ended by signal ", number));
        }
      }
      for (std::size_t rank = 0; rank < children_.size(); ++rank) {
        if (polled[rank + 1].revents != 0 && !Read(children_[rank])) {
          Ended(static_cast<int>(rank));
          --running;
        }
      }
    }
    return std::move(outcome_);
  }

  void KillAll() {
    for (const Child& child : children_) {
      if (child.pid > 0) ::kill(child.pid, SIGKILL);
    }
  }

 private:
  // False at the end of the rank's messages.
  bool Read(Child& child) {
    char buffer[4096];
    const ssize_t got = ::read(child.errors, buffer, sizeof(buffer));
    if (got > 0) child.text.append(buffer, static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
  }

  void Ended(int rank) {
    Child& child = children_[rank];
    const int code = Reap(child);
    if (code == 0) return;
    Fail(code, !child.text.empty() ? child.text
                                   : absl::StrCat("rank ", rank, " ended with exit code ", code));
  }

  // Only the first failure counts; those that follow are its consequences.
  void Fail(int code, std::string error) {
    if (outcome_.exit_code != 0) return;
    outcome_.exit_code = code;
    outcome_.error = std::move(error);
    KillAll();
  }

  std::vector<Child>& children_;
  LaunchOutcome outcome_;
};

}  // namespace

absl::StatusOr<LaunchOutcome> LaunchRanks(const std::vector<std::string>& arguments, int world) {
  // Before the directory, so that no signal can leave it behind.
  const Signals signals;
  if (signals.descriptor() < 0) return Failure("cannot watch signals");
  TemporaryDirectory store;
  WEFT_RETURN_IF_ERROR(store.Create());
  std::vector<Child> children;
  absl::Status status;
  for (int rank = 0; rank < world && status.ok(); ++rank) {
    auto child = Start(arguments, rank, world, store.path(), signals);
    status = child.status();
    if (child.ok()) children.push_back(*std::move(child));
  }
  Watcher watcher(children);
  if (!status.ok()) watcher.KillAll();
  LaunchOutcome outcome = watcher.Watch(signals);
  if (!status.ok()) return status;
  return outcome;
}

}  // namespace weft::tool
