// What a checkpoint says of the run besides its tensors, and whether a registered model is the one
// that it is of.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/runtime.h"

namespace weft::runtime {

struct MatrixRecord {
  std::string name;
  std::int64_t rows = 0;  // without padding
  std::int64_t cols = 0;
  std::string dtype;  // of the weight
  std::string rule;   // "Muon", "AdamW" or "custom"
  std::map<std::string, std::string> options;
  // Counts, by name. A reader takes those that it knows, so that rules can add some.
  std::map<std::string, std::int64_t> integers;
  // Those in use, and those that the rule was registered with.
  double lr = 0, weight_decay = 0;
  double registered_lr = 0, registered_weight_decay = 0;
};

// Names of MatrixRecord::integers.
inline constexpr char kAppliedSteps[] = "applied_steps";           // by AdamW
inline constexpr char kLastGradientStep[] = "last_gradient_step";  // as MatrixCounters'

struct Description {
  std::int64_t steps = 0;  // closed
  double loss_scale = 1;
  std::vector<MatrixRecord> matrices;  // in order of registration
};

// Of what is registered; steps, counts and rates in use are those of a run that has not begun.
Description DescribeModel(const std::vector<MatrixSpec>& specs);

nlohmann::ordered_json ToJson(const Description& description);
// InvalidArgument, beginning with `subject`, where it is none or has values that cannot be.
absl::StatusOr<Description> ParseDescription(const nlohmann::ordered_json& json,
                                             const std::string& subject);

// InvalidArgument, beginning with `subject`, names the first matrix that only one of the two has,
// or whose shape, dtype, rule or options differ; where `warnings` is given, differing options are
// told there instead.
absl::Status CompareModels(const Description& saved, const Description& registered,
                           const std::string& subject, std::vector<std::string>* warnings);

}  // namespace weft::runtime
