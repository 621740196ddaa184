// Element types as C++ types.
#pragma once

#include "device/half.h"
#include "weft/dtype.h"

namespace weft::device {

// Calls `body` with a null pointer of the element type that stands for `type`.
template <typename Body>
void WithElement(DType type, Body body) {
  switch (type) {
    case DType::kF32:
      body(static_cast<float*>(nullptr));
      return;
    case DType::kBF16:
      body(static_cast<BF16*>(nullptr));
      return;
    case DType::kF16:
      body(static_cast<F16*>(nullptr));
      return;
  }
}

}  // namespace weft::device
