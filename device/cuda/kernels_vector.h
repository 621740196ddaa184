// Element-wise kernels over vectors: the formulas of device/host/kernels.h, operation by operation.
//
// Every kernel says how many blocks it takes (Blocks) and, for those who check, which memory it
// touches: visit(pointer, rows, row_bytes, stride_bytes, write).
#pragma once

#include <cmath>
#include <cstdint>

#include "device/cuda/block_size.h"
#include "device/half.h"
#include "device/host_device.h"
#include "device/step_factors.h"
#include "weft/math.h"

namespace weft::device {

// Elements of a vector that one block takes.
inline constexpr std::int64_t kVectorPart = std::int64_t{8} * kBlockThreads;

WEFT_HD inline std::int64_t PartsOf(std::int64_t count, std::int64_t part) {
  return (count + part - 1) / part;
}

// fn(i) for the block's elements of `count`.
template <typename Block, typename Fn>
WEFT_HD void ForPart(Block& block, std::int64_t index, std::int64_t count, Fn fn) {
  const std::int64_t begin = index * kVectorPart;
  const std::int64_t left = count - begin;
  block.ForEach(left < kVectorPart ? left : kVectorPart, [&](std::int64_t i) { fn(begin + i); });
}

template <typename T, typename Visit>
void VisitVector(Visit& visit, const T* data, std::int64_t count, bool write) {
  visit(data, std::int64_t{1}, count * std::int64_t{sizeof(T)}, std::int64_t{0}, write);
}

template <typename Visit>
void VisitControl(Visit& visit, const StepControl* control) {
  if (control != nullptr) VisitVector(visit, control, 1, false);
}

template <typename T>
struct AddVector {
  std::int64_t count;
  const T* x;
  T* y;

  std::int64_t Blocks() const { return PartsOf(count, kVectorPart); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    ForPart(block, index, count, [&](std::int64_t i) { Store(Load(x + i) + Load(y + i), y + i); });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(visit, x, count, false);
    VisitVector(visit, y, count, false);
    VisitVector(visit, y, count, true);
  }
};

template <typename G>
struct MomentumVector {
  std::int64_t count;
  const G* gradient;
  float gradient_scale;
  float mu;
  bool nesterov;
  float* momentum;
  float* update;
  const StepControl* control;

  std::int64_t Blocks() const { return PartsOf(count, kVectorPart); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    if (Skips(control)) return;
    const float fresh = (1 - mu) * GradientScale(gradient_scale, control);
    ForPart(block, index, count, [&](std::int64_t i) {
      const float part = fresh * Load(gradient + i);
      const float moved = mu * momentum[i] + part;
      momentum[i] = moved;
      update[i] = nesterov ? mu * moved + part : moved;
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(visit, gradient, count, false);
    VisitVector(visit, momentum, count, false);
    VisitVector(visit, momentum, count, true);
    VisitVector(visit, update, count, true);
    VisitControl(visit, control);
  }
};

template <typename W>
struct ApplyVector {
  std::int64_t count;
  float decay;
  float step;
  const float* direction;
  W* weight;
  const StepControl* control;

  std::int64_t Blocks() const { return PartsOf(count, kVectorPart); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    if (Skips(control)) return;
    const float keep = 1 - decay;
    ForPart(block, index, count, [&](std::int64_t i) {
      Store(Load(weight + i) * keep - step * direction[i], weight + i);
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(visit, direction, count, false);
    VisitVector(visit, weight, count, false);
    VisitVector(visit, weight, count, true);
    VisitControl(visit, control);
  }
};

// Leaves the counter of steps to CountStep, which runs when no block reads it any more.
template <typename G, typename W>
struct AdamWVector {
  Math::AdamWArguments arguments;

  std::int64_t Blocks() const { return PartsOf(arguments.count, kVectorPart); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    if (Skips(arguments.control)) return;
    const auto t = static_cast<double>(*arguments.applied_steps + 1);
    const AdamWFactors f = FactorsOf(arguments, t);
    const auto* gradient = static_cast<const G*>(arguments.gradient);
    auto* weight = static_cast<W*>(arguments.weight);
    float* m = arguments.m;
    float* v = arguments.v;
    ForPart(block, index, arguments.count, [&](std::int64_t i) {
      const float g = f.gradient_scale * Load(gradient + i);
      m[i] = f.beta1 * m[i] + f.rest1 * g;
      v[i] = f.beta2 * v[i] + f.rest2 * g * g;
      const float denominator = std::sqrt(v[i]) / f.root + f.eps;
      Store(Load(weight + i) * f.keep - f.step * (m[i] / denominator), weight + i);
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(visit, static_cast<const G*>(arguments.gradient), arguments.count, false);
    for (const bool write : {false, true}) {
      VisitVector(visit, arguments.m, arguments.count, write);
      VisitVector(visit, arguments.v, arguments.count, write);
      VisitVector(visit, static_cast<const W*>(arguments.weight), arguments.count, write);
    }
    VisitVector(visit, arguments.applied_steps, 1, false);
    VisitControl(visit, arguments.control);
  }
};

struct CountStep {
  std::int64_t* applied_steps;
  const StepControl* control;

  std::int64_t Blocks() const { return 1; }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t) const {
    if (Skips(control)) return;
    block.ForEach(1, [&](std::int64_t) { ++*applied_steps; });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(visit, applied_steps, 1, false);
    VisitVector(visit, applied_steps, 1, true);
    VisitControl(visit, control);
  }
};

}  // namespace weft::device
