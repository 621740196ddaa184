// The scalars of the kernels that change state, worked out where the kernel runs.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/host_device.h"
#include "weft/math.h"

namespace weft::device {

WEFT_HD inline bool Skips(const StepControl* control) {
  return control != nullptr && control->skip != 0;
}

WEFT_HD inline float GradientScale(float scale, const StepControl* control) {
  return control == nullptr ? scale : scale * control->gradient_factor;
}

// Math::AdamW's scalars of one step.
struct AdamWFactors {
  float gradient_scale = 1;
  float keep = 1;  // 1 - lr * weight_decay
  float beta1 = 0;
  float rest1 = 0;  // 1 - beta1
  float beta2 = 0;
  float rest2 = 0;  // 1 - beta2
  float step = 0;   // lr / (1 - beta1^t)
  float root = 0;   // sqrt(1 - beta2^t)
  float eps = 0;
};

WEFT_HD inline AdamWFactors FactorsOf(const Math::AdamWArguments& arguments, double t) {
  AdamWFactors factors;
  factors.gradient_scale = GradientScale(arguments.gradient_scale, arguments.control);
  factors.keep = static_cast<float>(1 - arguments.lr * arguments.weight_decay);
  factors.beta1 = static_cast<float>(arguments.beta1);
  factors.rest1 = static_cast<float>(1 - arguments.beta1);
  factors.beta2 = static_cast<float>(arguments.beta2);
  factors.rest2 = static_cast<float>(1 - arguments.beta2);
  factors.step = static_cast<float>(arguments.lr / (1 - std::pow(arguments.beta1, t)));
  factors.root = static_cast<float>(std::sqrt(1 - std::pow(arguments.beta2, t)));
  factors.eps = static_cast<float>(arguments.eps);
  return factors;
}

}  // namespace weft::device
