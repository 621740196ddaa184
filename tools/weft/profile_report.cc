#include "tools/weft/profile_report.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/weft/names.h"
#include "tools/weft/table.h"
#include "tools/weft/topology_text.h"
#include "tools/weft/visible.h"
#include "weft/work.h"

namespace weft::tool {
namespace {

// A fit that is farther off somewhere is no good guide.
constexpr double kRoughFit = 0.25;
// Repetitions that lie farther apart say that the kernel was not alone.
constexpr double kWideSpread = 0.2;

std::string PercentText(double share) { return NumberText(share * 100) + " %"; }

void PrintHead(const CostProfile& profile, std::ostream& out) {
  const ProfileFingerprint& f = profile.fingerprint;
  const Topology& topology = f.topology;
  out << "measured " << Visible(profile.measured_at) << " by weft " << Visible(f.weft) << ", "
      << Visible(f.math_library) << "\n";
  out << "device: " << Visible(f.device_kind) << ", " << Visible(f.device) << ", threads "
      << f.threads << "\n";
  out << "world: " << topology.grid.size() << " ranks = " << topology.grid.nodes << " x "
      << topology.grid.ranks_per_node << ", transport " << Visible(f.transport) << "\n";
  out << "intra: " << IntraText(topology) << "\ninter: " << InterText(topology) << "\n";
  if (topology.root_complex_gigabytes_per_second > 0) {
    out << "root complexes: " << RootComplexText(topology) << "\n";
  }
  out << "\n";
}

// Newton-Schulz is bound by products, a row norm by memory.
std::string RateText(const ComputeSample& sample) {
  const ComputeShape& shape = sample.shape;
  if (shape.kind == ComputeKind::kNewtonSchulz) {
    return NumberText(sample.flops * sample.batch / sample.seconds * 1e-9) + " GFLOP/s";
  }
  return NumberText(RowNormWork(shape.rows, shape.cols).bytes * sample.batch / sample.seconds *
                    1e-9) +
         " GB/s";
}

void PrintKernels(const CostProfile& profile, std::ostream& out) {
  if (profile.compute.empty()) return;
  Table table({"kernel", "shape", "<dtype", "<recipe", "batch", "time", "rate", "gain", "spread"});
  std::map<ComputeShape, double> alone;
  int wide = 0;
  for (const ComputeSample& sample : profile.compute) {
    const ComputeShape& shape = sample.shape;
    if (sample.batch == 1) alone[shape] = sample.seconds;
    const auto single = alone.find(shape);
    const bool compared = sample.batch > 1 && single != alone.end();
    table.Add({std::string(Name(shape.kind)), absl::StrCat(shape.rows, " x ", shape.cols),
               std::string(Name(shape.dtype)), shape.recipe.empty() ? "-" : shape.recipe,
               absl::StrCat(sample.batch), SecondsText(sample.seconds), RateText(sample),
               compared ? NumberText(sample.batch * single->second / sample.seconds) : "-",
               PercentText(sample.spread)});
    wide += sample.spread > kWideSpread ? 1 : 0;
  }
  table.Print(out);
  if (wide > 0) {
    out << wide << " of " << profile.compute.size() << " spread by more than "
        << PercentText(kWideSpread) << ": ranks share CPUs, or something else was running\n";
  }
  out << "\n";
}

void PrintCollectives(const CostProfile& profile, std::ostream& out) {
  if (profile.collectives.empty()) return;
  Table table({"collective", "<group", "ranks", "latency", "bandwidth", "residual", "worst",
               "smallest", "largest"});
  std::size_t rough = 0;
  for (const CollectiveCost& cost : profile.collectives) {
    const LinkFit& fit = cost.fit;
    const auto sample_text = [](const LinkSample& sample) {
      return absl::StrCat(BytesText(static_cast<double>(sample.bytes)), " in ",
                          SecondsText(sample.seconds));
    };
    table.Add({KindName(cost.kind), std::string(Name(cost.group)), absl::StrCat(cost.ranks),
               NumberText(fit.latency_us) + " us",
               fit.gigabytes_per_second == 0 ? "no limit seen"
                                             : NumberText(fit.gigabytes_per_second) + " GB/s",
               PercentText(fit.rms_residual), PercentText(fit.max_residual),
               cost.samples.empty() ? "-" : sample_text(cost.samples.front()),
               cost.samples.empty() ? "-" : sample_text(cost.samples.back())});
    rough += fit.max_residual > kRoughFit ? 1 : 0;
  }
  table.Print(out);
  if (rough > 0) {
    out << rough << " of " << profile.collectives.size() << " fits are off by more than "
        << PercentText(kRoughFit) << " at some size: latency and bandwidth do not tell all of it\n";
  }
  out << "\n";
}

}  // namespace

void PrintProfile(const CostProfile& profile, std::ostream& out) {
  PrintHead(profile, out);
  PrintKernels(profile, out);
  PrintCollectives(profile, out);
}

}  // namespace weft::tool
