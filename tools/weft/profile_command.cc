// `weft profile`: measures kernels and collectives on this machine.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "tools/weft/commands.h"
#include "tools/weft/json_file.h"
#include "tools/weft/launcher.h"
#include "tools/weft/profile_report.h"
#include "tools/weft/progress.h"
#include "tools/weft/ranks.h"
#include "tools/weft/session.h"
#include "tools/weft/status_macros.h"
#include "tools/weft/table.h"
#include "weft/device.h"
#include "weft/measure.h"
#include "weft/safetensors.h"

namespace weft::tool {
namespace {

// One number of a list; absl's own parser takes a sign and blanks.
bool ParsePositive(absl::string_view text, std::int64_t* value) {
  return !text.empty() && text.find_first_not_of("0123456789") == absl::string_view::npos &&
         absl::SimpleAtoi(text, value) && *value > 0;
}

absl::StatusOr<std::vector<std::int64_t>> ParseList(const char* option, const std::string& text) {
  std::vector<std::int64_t> values;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (!ParsePositive(part, &values.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat(option, " ", Quoted(text), " is no list of positive integers such as 1,2"));
    }
  }
  return values;
}

absl::StatusOr<std::vector<MatrixShape>> ParseShapes(const std::string& text) {
  std::vector<MatrixShape> shapes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, 'x');
    MatrixShape shape;
    if (sides.size() != 2 || !ParsePositive(sides[0], &shape.rows) ||
        !ParsePositive(sides[1], &shape.cols)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--shapes ", Quoted(text), " is no list of shapes such as 768x2304"));
    }
    shapes.push_back(shape);
  }
  return shapes;
}

absl::Status AddShapesOfModel(const Options& options, std::vector<MatrixShape>& shapes) {
  WEFT_ASSIGN_OR_RETURN(const Model model, LoadModel(options.model));
  WEFT_ASSIGN_OR_RETURN(const Routing routing,
                        RouteTensors(model, Gradients::Seeded(0), options.adamw_patterns));
  const std::size_t before = shapes.size();
  for (const RoutedMatrix& matrix : routing.matrices) {
    if (matrix.route == Route::kMuon) shapes.push_back({matrix.rows, matrix.cols});
  }
  if (shapes.size() > before) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.model, ": no tensor of it would take Muon"));
}

// The smallest batch of the largest shape on every rank of this machine: what is always measured.
absl::Status CheckMemory(const Options& options, const MeasureOptions& measure) {
  double most = 0;
  for (const MatrixShape& shape : measure.shapes) {
    const auto [m, n] = std::minmax(shape.rows, shape.cols);
    // Input and output in fp32; two long and five small operands.
    most = std::max(most, static_cast<double>(m) *
                              (8.0 * static_cast<double>(n) +
                               static_cast<double>(SizeOf(measure.newton_schulz.operand_type)) *
                                   (2.0 * static_cast<double>(n) + 5.0 * static_cast<double>(m))));
  }
  for (const std::int64_t size : measure.sizes)
    most = std::max(most, 2.0 * static_cast<double>(size));
  const int here = options.rank >= 0 ? 1 : measure.topology.grid.size();
  const double needed =
      most * here * *std::min_element(measure.batches.begin(), measure.batches.end());
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed <= machine) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "measuring needs ", BytesText(needed), " of memory, the machine has ", BytesText(machine)));
}

absl::Status CheckOut(const Options& options) {
  if (options.out.empty() || options.rank > 0) return absl::OkStatus();
  for (const auto& [role, path] : {std::pair<const char*, std::string>{"MODEL", options.model},
                                   {"--topology", options.topology},
                                   {"--coefficients", options.coefficients}}) {
    if (!path.empty() && SameFile(options.out, path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--out ", options.out, " is the same file as ", role, " ", path));
    }
  }
  return CheckWritable(options.out);
}

absl::StatusOr<MeasureOptions> Prepare(const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const Settings settings, SettingsOf(options));
  MeasureOptions measure;
  measure.topology = settings.runtime.topology;
  WEFT_RETURN_IF_ERROR(CheckRankOptions(options, measure.topology));
  measure.newton_schulz = settings.muon.newton_schulz;
  if (options.model.empty() && options.shapes.empty()) {
    return absl::InvalidArgumentError("there is nothing to measure: give MODEL or --shapes");
  }
  if (!options.shapes.empty()) {
    WEFT_ASSIGN_OR_RETURN(measure.shapes, ParseShapes(options.shapes));
  }
  if (!options.model.empty()) WEFT_RETURN_IF_ERROR(AddShapesOfModel(options, measure.shapes));
  if (!options.batches.empty()) {
    WEFT_ASSIGN_OR_RETURN(const auto batches, ParseList("--batches", options.batches));
    measure.batches.clear();
    for (const std::int64_t batch : batches) {
      // Where it does not fit it is refused below, as any other that is too large.
      measure.batches.push_back(static_cast<int>(std::min<std::int64_t>(batch, 1 << 30)));
    }
  }
  if (!options.sizes.empty()) {
    WEFT_ASSIGN_OR_RETURN(measure.sizes, ParseList("--sizes", options.sizes));
  }
  measure.repetitions = options.repetitions;
  if (!(options.longest > 0) || !std::isfinite(options.longest)) {
    return absl::InvalidArgumentError("--longest must be a positive number of seconds");
  }
  measure.longest = absl::Seconds(options.longest);
  WEFT_RETURN_IF_ERROR(Validate(measure));
  WEFT_RETURN_IF_ERROR(CheckMemory(options, measure));
  WEFT_RETURN_IF_ERROR(CheckOut(options));
  return measure;
}

absl::StatusOr<CostProfile> MeasureHere(const Options& options, MeasureOptions measure,
                                        Transport& transport) {
  HostDeviceOptions device_options;
  device_options.threads = options.threads;
  WEFT_ASSIGN_OR_RETURN(const auto device, CreateHostDevice(device_options));
  std::optional<Progress> progress;
  std::int64_t begun = 0;
  if (transport.rank() == 0) {
    progress.emplace("measurements", MostMeasurements(measure));
    measure.on_sample = [&](const std::string&) { progress->Advance(begun++); };
  }
  return MeasureCosts(*device, transport, measure);
}

// One rank's part; all get the same profile.
absl::Status MeasureRank(const Options& options, const MeasureOptions& measure,
                         Transport& transport, CostProfile& profile) {
  absl::Status status;
  try {
    auto measured = MeasureHere(options, measure, transport);
    status = measured.status();
    if (measured.ok() && transport.rank() <= 0) profile = *std::move(measured);
  } catch (const std::exception& error) {
    // Its peers would wait, and from a thread it would end the process.
    status = absl::ResourceExhaustedError(
        absl::StrCat("rank ", transport.rank(), ": ", SentenceOf(error)));
  }
  if (!status.ok()) transport.Abort(status);
  return status;
}

int Conclude(const Options& options, const CostProfile& profile) {
  const std::string json = CostProfileToJson(profile);
  if (!options.out.empty()) {
    const absl::Status status = WriteFileAtomically(
        options.out,
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(json.data()), json.size()));
    if (!status.ok()) return Complain(std::string(status.message()), kFailed, options.error_fd);
  }
  if (options.json) {
    std::cout << json;
  } else {
    PrintProfile(profile, std::cout);
    if (!options.out.empty()) std::cout << "written to " << options.out << "\n";
  }
  return std::cout.flush() ? 0 : Complain("cannot write to stdout", kFailed, options.error_fd);
}

}  // namespace

int ProfileCommand(const Options& options, const std::vector<std::string>& arguments) {
  const auto measure = Prepare(options);
  if (!measure.ok()) {
    return Complain(std::string(measure.status().message()), kBadInput, options.error_fd);
  }
  WarnOfLinks(options, measure->topology);
  CostProfile profile;
  absl::Status status;
  if (options.transport == "local") {
    status = RunAsThreads(
        measure->topology, absl::Seconds(options.deadline),
        [&](Transport& transport) { return MeasureRank(options, *measure, transport, profile); });
  } else if (options.rank < 0) {
    const auto outcome = LaunchRanks(arguments, measure->topology.grid.size());
    if (!outcome.ok()) return Complain(std::string(outcome.status().message()), kFailed);
    return outcome->exit_code == 0 ? 0 : Complain(outcome->error, outcome->exit_code);
  } else {
    const auto transport = JoinOthers(options);
    if (!transport.ok()) {
      return Complain(std::string(transport.status().message()),
                      IsBadStore(transport.status()) ? kBadInput : kFailed, options.error_fd);
    }
    status = MeasureRank(options, *measure, **transport, profile);
  }
  if (!status.ok()) return Complain(std::string(status.message()), kFailed, options.error_fd);
  return options.rank <= 0 ? Conclude(options, profile) : 0;
}

}  // namespace weft::tool
