/* 16-bit floating-point types as fp32, and back with one rounding to nearest, ties to even. */
#ifndef EXAMPLES_PLUGIN_HALF_H_
#define EXAMPLES_PLUGIN_HALF_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline uint32_t ToBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float FromBf16(uint16_t half) { return FromBits((uint32_t)half << 16); }

static inline uint16_t ToBf16(float value) {
  const uint32_t bits = ToBits(value);
  if (isnan(value)) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float FromF16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0x1f) return FromBits(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) { /* a multiple of 2^-24 */
    const float magnitude = ldexpf((float)fraction, -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return FromBits(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t ToF16(float value) {
  const uint32_t bits = ToBits(value);
  const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
  const float magnitude = fabsf(value);
  if (isnan(value)) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 65520.0f) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x1p-14f) { /* below the normal numbers: whole multiples of 2^-24 */
    return (uint16_t)(sign | (uint16_t)nearbyintf(ldexpf(magnitude, 24)));
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + ((bits >> 13) & 1);
  return (uint16_t)(sign | (uint16_t)((rounded - 0x38000000) >> 13));
}

#endif /* EXAMPLES_PLUGIN_HALF_H_ */
