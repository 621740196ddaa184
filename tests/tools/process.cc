#include "tests/tools/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "tests/support/temporary_folder.h"

extern char** environ;

namespace weft::testing {
namespace {

pid_t Spawn(std::vector<std::string> arguments, std::vector<std::string> environment,
            const std::string& out, const std::string& err) {
  std::vector<char*> argv, envp;
  for (std::string& text : arguments) argv.push_back(text.data());
  argv.push_back(nullptr);
  // The first of two entries with one name counts.
  for (std::string& text : environment) envp.push_back(text.data());
  for (char** entry = environ; *entry != nullptr; ++entry) envp.push_back(*entry);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  ::posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Finished RunProgram(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment) {
  const TemporaryFolder folder;
  const pid_t pid = Spawn(arguments, environment, folder / "out", folder / "err");
  Finished finished;
  if (pid < 0) return finished;
  finished.exit_code = WaitFor(pid);
  finished.out = ReadAll(folder / "out");
  finished.err = ReadAll(folder / "err");
  return finished;
}

Running::Running(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment)
    : pid_(Spawn(arguments, environment, "/dev/null", "/dev/null")) {}

Running::~Running() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  WaitFor(pid_);
}

void Running::Signal(int number) {
  if (pid_ > 0) ::kill(pid_, number);
}

std::vector<pid_t> Running::Children() const {
  const std::string pid = std::to_string(pid_);
  std::ifstream file("/proc/" + pid + "/task/" + pid + "/children");
  std::vector<pid_t> children;
  for (pid_t child; file >> child;) children.push_back(child);
  return children;
}

int Running::Wait() {
  const int code = pid_ > 0 ? WaitFor(pid_) : -1;
  pid_ = -1;
  return code;
}

}  // namespace weft::testing
