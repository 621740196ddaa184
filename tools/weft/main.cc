// The command-line tool: `weft run`, `weft plan`, `weft profile` and `weft presets`.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tools/weft/commands.h"
#include "tools/weft/options.h"
#include "weft/version.h"

namespace weft::tool {
namespace {

int Main(int argc, char** argv) {
  // A reader that goes away, and a file beyond the system's limit, are found by the failing write.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app("Weft runs and plans the optimizer step of distributed Muon on a model's matrices.",
               "weft");
  app.require_subcommand(1);
  app.set_version_flag("--version", "weft " + std::string(Version()));
  app.get_formatter()->column_width(30);
  // The parser would only miss a subcommand.
  const std::string command = argc > 1 ? argv[1] : "-";
  if (command[0] != '-' && command != "plan" && command != "run" && command != "profile" &&
      command != "presets") {
    return Complain("unknown command " + command + ": neither plan, run, profile nor presets",
                    kBadInput);
  }
  Options plan_options, run_options, profile_options, presets_options;
  CLI::App* plan = app.add_subcommand(
      "plan", "Print owners, lanes, bytes, FLOPs, memory and balance without running");
  CLI::App* run = app.add_subcommand("run", "Perform optimizer steps over several ranks");
  CLI::App* profile = app.add_subcommand(
      "profile", "Measure kernels and collectives on this machine, for plan --profile");
  CLI::App* presets =
      app.add_subcommand("presets", "List the topologies that --preset takes, or print one");
  AddPlanOptions(*plan, plan_options);
  AddRunOptions(*run, run_options);
  AddProfileOptions(*profile, profile_options);
  AddPresetsOptions(*presets, presets_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    // The parser's own message lists them in reverse.
    std::string extras;
    for (const std::string& extra : app.remaining(/*recurse=*/true)) extras += " " + extra;
    return Complain("not expected here:" + extras, kBadInput);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Complain(error.what(), kBadInput);
  }
  try {
    if (plan->parsed()) return PlanCommand(plan_options);
    if (presets->parsed()) return PresetsCommand(presets_options);
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (profile->parsed()) return ProfileCommand(profile_options, arguments);
    return RunCommand(run_options, arguments);
  } catch (const std::exception& error) {
    const Options& given = profile->parsed() ? profile_options : run_options;
    return Complain(SentenceOf(error), kFailed, given.error_fd);
  }
}

}  // namespace
}  // namespace weft::tool

int main(int argc, char** argv) {
  // What comes here is most likely want of memory, so that complaining must not need any.
  try {
    return weft::tool::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft: %s\n", error.what());
  } catch (...) {
    std::fputs("weft: an unknown exception\n", stderr);
  }
  return weft::tool::kFailed;
}
