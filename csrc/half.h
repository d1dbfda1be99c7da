// IEEE half precision and bfloat16 to float and back, without the machine's own instructions.
#pragma once
#include <cstdint>
#include <cstring>

namespace forerun {

// The bits of a half, as its own type: files and Python arrays hold it, nothing computes with it.
struct Half {
    uint16_t bits;
};

inline float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float to_float(Half half) {
    const uint32_t sign = uint32_t(half.bits & 0x8000) << 16, rest = half.bits & 0x7FFF;
    if (rest >= 0x7C00) return from_bits(sign | 0x7F800000 | (rest & 0x3FF) << 13);  // infinity, NaN
    if (rest >= 0x0400) return from_bits(sign | ((rest << 13) + (uint32_t(127 - 15) << 23)));
    return from_bits(sign | to_bits(float(rest) * 0x1p-24f));  // subnormal: a multiple of 2^-24
}

// Round to nearest, ties to even.
inline Half to_half(float value) {
    const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return {uint16_t(sign | 0x7E00)};   // NaN
    if (rest >= 0x47800000) return {uint16_t(sign | 0x7C00)};  // 65536 and up: infinity
    if (rest < 0x38800000) {                                   // below the smallest normal: round by adding 0.5
        const float shifted = from_bits(rest) + 0.5f;          // ulp of [0.5, 1) is 2^-24, that of subnormals
        return {uint16_t(sign | (to_bits(shifted) - to_bits(0.5f)))};
    }
    return {uint16_t(sign | ((rest + 0xFFF + (rest >> 13 & 1) - (uint32_t(127 - 15) << 23)) >> 13))};
}

inline float bf16_to_float(uint16_t bits) { return from_bits(uint32_t(bits) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t to_bf16(float value) {
    const uint32_t bits = to_bits(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace forerun
