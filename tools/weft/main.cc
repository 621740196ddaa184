// The command-line tool: `weft run` and `weft plan`.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/weft/commands.h"
#include "tools/weft/options.h"

namespace weft::tool {

int Complain(const std::string& sentence, int exit_code, int error_fd) {
  std::string line;
  for (const char c : sentence) line += c == '\n' ? ' ' : c;
  if (error_fd < 0) {
    std::fprintf(stderr, "weft: %s\n", line.c_str());
    return exit_code;
  }
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(error_fd, line.data() + done, line.size() - done);
    if (written < 0 && errno != EINTR) break;
    if (written > 0) done += static_cast<std::size_t>(written);
  }
  return exit_code;
}

namespace {

int Main(int argc, char** argv) {
  // A reader that goes away is found by the failing write.
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Weft runs and plans the optimizer step of distributed Muon on a model's matrices.",
               "weft");
  app.require_subcommand(1);
  app.set_version_flag("--version", "weft 0.1.0");
  app.get_formatter()->column_width(30);
  Options plan_options;
  Options run_options;
  CLI::App* plan = app.add_subcommand(
      "plan", "Print owners, lanes, bytes, FLOPs, memory and balance without running");
  CLI::App* run = app.add_subcommand("run", "Perform optimizer steps over several ranks");
  AddPlanOptions(*plan, plan_options);
  AddRunOptions(*run, run_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Complain(error.what(), kBadInput);
  }
  if (plan->parsed()) return PlanCommand(plan_options);
  return RunCommand(run_options, std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace
}  // namespace weft::tool

int main(int argc, char** argv) { return weft::tool::Main(argc, argv); }
