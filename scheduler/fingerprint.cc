#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/topology_fields.h"
#include "scheduler/limits.h"
#include "weft/plan.h"

namespace weft {
namespace {

// Lengths go in before contents, so that moving a border between two lists changes the digest.
class Digest {
 public:
  void Add(std::uint64_t word) {
    // splitmix64's mixing of the running state.
    state_ += word + 0x9e3779b97f4a7c15u;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebu;
    state_ ^= state_ >> 31;
  }
  void Add(std::int64_t value) { Add(static_cast<std::uint64_t>(value)); }
  void Add(std::int32_t value) { Add(static_cast<std::int64_t>(value)); }
  void Add(double value) { Add(std::bit_cast<std::uint64_t>(value)); }
  void Add(std::string_view text) {
    Add(static_cast<std::uint64_t>(text.size()));
    for (char c : text) Add(static_cast<std::int32_t>(c));
  }
  template <typename T>
  void Add(const std::vector<T>& values) {
    Add(static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) Add(value);
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void Add(Enum value) { Add(static_cast<std::int32_t>(value)); }

  void Add(const Topology& topology) {
    base::VisitFields(topology, [this](std::string_view, const auto& value) { Add(value); });
  }
  void Add(const PlanMatrix& matrix) {
    Add(matrix.name);
    Add(matrix.rows);
    Add(matrix.cols);
    Add(matrix.dtype);
    Add(matrix.layout);
    Add(matrix.layer);
    Add(matrix.gradient);
    Add(matrix.rule);
    Add(matrix.state_bytes_per_element);
    Add(matrix.flops);
    Add(matrix.ns_run);
    Add(matrix.period);
    Add(matrix.phase);
    Add(matrix.norm_vectors);
    Add(matrix.shard_rows);
    Add(static_cast<std::int32_t>(matrix.pass_through));
    Add(matrix.owner);
    Add(matrix.bucket);
    Add(matrix.batch);
    Add(matrix.norm_set);
    Add(matrix.exchange);
    for (std::int32_t buffer : matrix.buffers) Add(buffer);
    Add(matrix.path);
    Add(matrix.fallback);
    Add(matrix.peak_bytes);
    Add(matrix.alternative_peak_bytes);
  }
  void Add(const PlanLimits& limits) {
    scheduler::VisitFields(limits,
                           [&](const char*, auto value) { Add(static_cast<std::int64_t>(value)); });
  }
  void Add(const Use& use) {
    Add(use.layer);
    Add(static_cast<std::int32_t>(use.backward));
  }
  void Add(const Group& group) {
    Add(group.name);
    Add(group.parts);
  }
  void Add(const Op& op) {
    Add(op.kind);
    Add(op.lane);
    Add(op.stage);
    Add(op.trigger);
    Add(op.when);
    Add(op.source);
    Add(op.target);
    Add(op.matrix);
    Add(op.set);
    Add(op.group);
    Add(op.root);
    Add(op.use);
    Add(op.pass);
    Add(op.form);
    Add(op.piece);
    Add(op.pieces);
    Add(op.with_next);
    Add(op.bytes);
    Add(op.flops);
    Add(op.after);
    Add(op.after_previous);
  }

  std::uint64_t state() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace

std::uint64_t Fingerprint(const Plan& plan) {
  Digest digest;
  digest.Add(plan.topology);
  digest.Add(plan.strategy);
  digest.Add(plan.check_gradients);
  digest.Add(plan.limits);
  digest.Add(plan.matrices);
  digest.Add(plan.sets);
  digest.Add(plan.buffers);
  digest.Add(plan.uses);
  digest.Add(plan.groups);
  digest.Add(plan.ops);
  digest.Add(static_cast<std::uint64_t>(plan.lanes.size()));
  for (const auto& rank : plan.lanes) {
    for (const auto& lane : rank) digest.Add(lane);
  }
  return digest.state();
}

}  // namespace weft
