// Measured costs of one machine: what `weft profile` writes and the cost model reads. Pure data.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/dtype.h"
#include "weft/plan.h"
#include "weft/topology.h"

#pragma GCC visibility push(default)
namespace weft {

enum class ComputeKind : std::uint8_t { kNewtonSchulz, kRowNorm };

// What the time of one run depends on, beside how many matrices it takes at once.
struct ComputeShape {
  ComputeKind kind = ComputeKind::kNewtonSchulz;
  // A profile has rows <= cols: the short side first, whichever way the matrix lies.
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::kF32;  // operands of Newton-Schulz, elements of a row norm
  // Newton-Schulz: the products that are run, "gram 2,2,1" or "plain 5". Coefficients do not change
  // the time. Empty for a row norm.
  std::string recipe;

  friend auto operator<=>(const ComputeShape&, const ComputeShape&) = default;
};

struct ComputeSample {
  ComputeShape shape;
  int batch = 1;
  double flops = 0;    // executed for one matrix of the batch, > 0
  double seconds = 0;  // of the whole batch, > 0: the median of the repetitions
  // Interquartile range of the repetitions over the median.
  double spread = 0;
  friend bool operator==(const ComputeSample&, const ComputeSample&) = default;
};

struct LinkSample {
  std::int64_t bytes = 0;  // payload of the whole operation, as Op::bytes
  double seconds = 0;      // > 0, the median
  double spread = 0;       // as above
  friend bool operator==(const LinkSample&, const LinkSample&) = default;
};

// seconds = latency + bytes / bandwidth, of the whole operation: not the links it runs over.
struct LinkFit {
  double latency_us = 0;
  double gigabytes_per_second = 0;  // 10^9 bytes; 0 = no cost per byte was seen
  // |fit / measured - 1| over the samples: the largest, and the root of the mean square.
  double max_residual = 0;
  double rms_residual = 0;

  double Seconds(double bytes) const;
  friend bool operator==(const LinkFit&, const LinkFit&) = default;
};

// Least squares of the relative error, sum (fit / measured - 1)^2, with neither latency nor time
// per byte below zero. InvalidArgument for fewer than two different sizes, negative sizes, and
// times that are not positive and finite.
absl::StatusOr<LinkFit> FitLink(absl::Span<const LinkSample> samples);

struct CollectiveCost {
  OpKind kind = OpKind::kAllReduce;  // kAllReduce to kScatter
  GroupClass group = GroupClass::kWorld;
  int ranks = 2;  // members of the group, >= 2
  LinkFit fit;
  std::vector<LinkSample> samples;  // what was fitted, ascending sizes; may be empty
  friend bool operator==(const CollectiveCost&, const CollectiveCost&) = default;
};

// What a profile was measured on. In a question to CheckProfile() an empty text and 0 threads mean
// "not known", and are not compared.
struct ProfileFingerprint {
  std::string weft;          // version, "0.1.0"
  std::string math_library;  // "oneDNN 3.1.1"
  std::string device_kind;   // "host"
  std::string device;        // "AMD EPYC, 2 CPUs"
  int threads = 0;           // that one product may use
  std::string transport;     // "local", "gloo"
  Topology topology;
  friend bool operator==(const ProfileFingerprint&, const ProfileFingerprint&) = default;
};

struct CostProfile {
  static constexpr int kFormat = 1;

  std::string measured_at;  // UTC, "2026-11-30T12:00:00Z"; for people
  ProfileFingerprint fingerprint;
  std::vector<ComputeSample> compute;       // each shape and batch once
  std::vector<CollectiveCost> collectives;  // each kind, group class and size once
  friend bool operator==(const CostProfile&, const CostProfile&) = default;
};

// The format is described in docs/profile.md. InvalidArgument with one sentence that names the
// field, for anything that is missing, unknown, given twice or out of range, and for another
// format.
absl::StatusOr<CostProfile> ParseCostProfile(std::string_view json);
// The same from a regular file; NotFound if there is none.
absl::StatusOr<CostProfile> ReadCostProfile(const std::string& path);
// ParseCostProfile() gives an equal profile; two spaces of indentation.
std::string CostProfileToJson(const CostProfile& profile);

// FailedPrecondition with the first field that differs, both values and the date: *stale* where the
// versions of Weft or its math library are others, *foreign* where device, threads, transport or
// topology are. Age alone is no reason: nothing that is compared has changed.
absl::Status CheckProfile(const CostProfile& profile, const ProfileFingerprint& current);

std::string_view Name(ComputeKind kind);
std::string_view Name(GroupClass group);

}  // namespace weft
#pragma GCC visibility pop
