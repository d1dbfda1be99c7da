#include "pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace forerun {
namespace {

// `work(strip)` for every strip, the halves on two threads where that is worth a thread.
template <class Work>
void each_strip(size_t rows, size_t cols, const Work& work) {
    const size_t count = strips(rows), half = rows * cols > (1u << 18) ? count / 2 : 0;
    const auto span = [&](size_t first, size_t last) {
        for (size_t s = first; s < last; ++s) work(s);
    };
    std::thread other;
    if (half > 0) {
        try {
            other = std::thread(span, 0, half);
        } catch (const std::system_error&) {  // no more threads: this one does it all
            span(0, half);
        }
    }
    span(half, count);
    if (other.joinable()) other.join();
}

size_t rows_in(size_t strip, size_t rows) { return std::min<size_t>(STRIP, rows - strip * STRIP); }

// Values that lie `STEP` inputs to an output, in steps of both panels: f32 (1), bf16 (2), int8 (4).
template <size_t STEP, class T, class Turn>
void interleave(const T* matrix, size_t rows, size_t cols, size_t strip, uint8_t* out, const Turn& turn) {
    for (size_t r = 0; r < rows_in(strip, rows); ++r) {
        const T* from = matrix + (strip * STRIP + r) * cols;
        for (size_t k = 0; k < cols; ++k) {
            const T value = turn(from[k]);
            std::memcpy(out + (k / STEP * STRIP * STEP + r * STEP + k % STEP) * sizeof(T), &value, sizeof(T));
        }
    }
}

constexpr uint8_t ZERO = 128;  // the byte of code 0 in int8 and q8_0

// Where code k of a block lies among the bytes of q8_0: [8 groups][32 outputs][4].
constexpr size_t in_block(size_t k, size_t r) { return k / 4 * STRIP * 4 + r * 4 + k % 4; }

// One block of one output. Returns the bits that should not have been set in any code.
uint8_t put_block(Format format, const int8_t* codes, size_t r, uint8_t* bytes) {
    if (format == Q8_0) {
        for (size_t k = 0; k < BLOCK; ++k) bytes[in_block(k, r)] = uint8_t(codes[k]) ^ 0x80;  // + 128
        return 0;
    }
    uint8_t seen = 0;
    for (size_t k = 0; k < BLOCK / 2; ++k) {
        const uint8_t low = uint8_t(codes[k]), high = uint8_t(codes[k + BLOCK / 2]);
        bytes[in_block(k, r)] = uint8_t((low & 15) | high << 4);
        seen |= low | high;
    }
    return seen & 0xF0;
}

template <class T>
T get(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

}  // namespace

size_t checked_matrix_bytes(Format format, size_t rows, size_t cols) {
    constexpr size_t MOST = size_t(1) << 40;  // values: far above any model, far below overflow
    if (rows < 1 || cols < 1 || rows > MOST || cols > MOST || rows > MOST / cols)
        throw std::invalid_argument("a matrix cannot have " + std::to_string(rows) + " x " + std::to_string(cols) +
                                    " values (allowed: 1 to 2^40)");
    return matrix_bytes(format, rows, cols);
}

void pack_f32(const float* matrix, size_t rows, size_t cols, uint8_t* out) {
    const size_t bytes = strip_bytes(F32, cols);
    each_strip(rows, cols, [&](size_t s) {
        std::memset(out + s * bytes, 0, bytes);
        interleave<1>(matrix, rows, cols, s, out + s * bytes, [](float v) { return v; });
    });
}

void pack_bf16(const uint16_t* matrix, size_t rows, size_t cols, uint8_t* out) {
    const size_t bytes = strip_bytes(BF16, cols);
    each_strip(rows, cols, [&](size_t s) {
        std::memset(out + s * bytes, 0, bytes);
        interleave<2>(matrix, rows, cols, s, out + s * bytes, [](uint16_t v) { return v; });
    });
}

bool pack_int8(const int8_t* codes, const float* scales, size_t rows, size_t cols, uint8_t* out) {
    const size_t bytes = strip_bytes(INT8, cols), tail = bytes - STRIP * sizeof(float);
    std::atomic<bool> good{true};
    each_strip(rows, cols, [&](size_t s) {
        uint8_t* strip = out + s * bytes;
        std::memset(strip, ZERO, tail);
        std::memset(strip + tail, 0, STRIP * sizeof(float));
        std::memcpy(strip + tail, scales + s * STRIP, rows_in(s, rows) * sizeof(float));
        int8_t least = 0;
        interleave<4>(codes, rows, cols, s, strip, [&least](int8_t v) {
            least = std::min(least, v);
            return int8_t(uint8_t(v) ^ 0x80);
        });
        if (least == -128) good = false;
    });
    return good;
}

bool pack_blocks(Format format, const int8_t* codes, const Half* d, const Half* m, size_t rows, size_t cols,
                 uint8_t* out) {
    const size_t bytes = strip_bytes(format, cols), unit = unit_bytes(format), blocks = cols / BLOCK;
    const size_t head = format == Q4_1 ? 2 * STRIP * sizeof(Half) : STRIP * sizeof(Half);
    const uint8_t zero = format == Q8_0 ? ZERO : format == Q4_0 ? 0x88 : 0;  // its scale is 0 as well
    std::atomic<bool> good{true};
    each_strip(rows, cols, [&](size_t s) {
        uint8_t over = 0;
        for (size_t b = 0; b < bytes / unit; ++b) {
            uint8_t* at = out + s * bytes + b * unit;
            std::memset(at, 0, head);
            std::memset(at + head, zero, unit - head);
            for (size_t r = 0; b < blocks && r < rows_in(s, rows); ++r) {
                const size_t row = s * STRIP + r;
                std::memcpy(at + r * sizeof(Half), d + row * blocks + b, sizeof(Half));
                if (format == Q4_1) std::memcpy(at + (STRIP + r) * sizeof(Half), m + row * blocks + b, sizeof(Half));
                over |= put_block(format, codes + row * cols + b * BLOCK, r, at + head);
            }
        }
        if (over) good = false;
    });
    return good;
}

bool pack_nf4(const uint8_t* codes, const float* absmax, size_t rows, size_t cols, uint8_t* out) {
    const size_t bytes = strip_bytes(NF4, cols), unit = unit_bytes(NF4), head = STRIP * sizeof(float);
    std::atomic<bool> good{true};
    each_strip(rows, cols, [&](size_t s) {
        uint8_t over = 0;
        for (size_t b = 0; b < bytes / unit; ++b) {
            uint8_t* at = out + s * bytes + b * unit;
            std::memset(at, 0, head);
            std::memset(at + head, 0x77, unit - head);  // code 7 is 0
            for (size_t r = 0; r < rows_in(s, rows); ++r) {
                const size_t row = s * STRIP + r;
                const uint8_t* from = codes + row * cols + b * NF4_BLOCK;
                std::memcpy(at + r * sizeof(float), absmax + row * (cols / NF4_BLOCK) + b, sizeof(float));
                for (size_t k = 0; k < NF4_BLOCK; k += 2) {
                    at[head + k / 2 * STRIP + r] = uint8_t((from[k] & 15) | from[k + 1] << 4);
                    over |= from[k] | from[k + 1];
                }
            }
        }
        if (over & 0xF0) good = false;
    });
    return good;
}

void unpack_row(Format format, const uint8_t* packed, size_t, size_t cols, size_t row, float* out) {
    const size_t bytes = strip_bytes(format, cols), unit = unit_bytes(format), r = row % STRIP;
    const uint8_t* at = packed + row / STRIP * bytes;
    switch (format) {
        case F32:
            for (size_t k = 0; k < cols; ++k) out[k] = get<float>(at + k * unit + r * 4);
            return;
        case BF16:
            for (size_t k = 0; k < cols; ++k)
                out[k] = bf16_to_float(get<uint16_t>(at + k / 2 * unit + r * 4 + k % 2 * 2));
            return;
        case INT8: {
            const float scale = get<float>(at + bytes - STRIP * sizeof(float) + r * 4);
            for (size_t k = 0; k < cols; ++k) out[k] = scale * float(int(at[in_block(k, r)]) - ZERO);
            return;
        }
        case Q8_0:
            for (size_t b = 0; b * BLOCK < cols; ++b, at += unit) {
                const float d = to_float(get<Half>(at + r * 2));
                const uint8_t* codes = at + STRIP * sizeof(Half);
                for (size_t k = 0; k < std::min<size_t>(BLOCK, cols - b * BLOCK); ++k)
                    out[b * BLOCK + k] = d * float(int(codes[in_block(k, r)]) - ZERO);
            }
            return;
        case Q4_0:
        case Q4_1: {
            const size_t head = STRIP * sizeof(Half) * (format == Q4_1 ? 2 : 1);
            const int zero = format == Q4_0 ? 8 : 0;
            for (size_t b = 0; b * BLOCK < cols; ++b, at += unit) {
                const float d = to_float(get<Half>(at + r * 2));
                const float m = format == Q4_1 ? to_float(get<Half>(at + (STRIP + r) * 2)) : -0.0f;  // x + -0 is x
                for (size_t k = 0; k < std::min<size_t>(BLOCK, cols - b * BLOCK); ++k) {
                    const uint8_t both = at[head + in_block(k % 16, r)];
                    // d has 11 bits, the code 4: the product is exact, so a fused multiply-add gives the same.
                    out[b * BLOCK + k] = d * float(int(k < 16 ? both & 15 : both >> 4) - zero) + m;
                }
            }
            return;
        }
        case NF4:
            for (size_t b = 0; b * NF4_BLOCK < cols; ++b, at += unit) {
                const float absmax = get<float>(at + r * 4);
                for (size_t k = 0; k < std::min<size_t>(NF4_BLOCK, cols - b * NF4_BLOCK); ++k) {
                    const uint8_t both = at[STRIP * sizeof(float) + k / 2 * STRIP + r];
                    out[b * NF4_BLOCK + k] = absmax * NF4_VALUES[k % 2 ? both >> 4 : both & 15];
                }
            }
            return;
        default:
            return;
    }
}

void unpack(Format format, const uint8_t* packed, size_t rows, size_t cols, float* out) {
    each_strip(rows, cols, [&](size_t s) {
        for (size_t row = s * STRIP; row < s * STRIP + rows_in(s, rows); ++row)
            unpack_row(format, packed, rows, cols, row, out + row * cols);
    });
}

}  // namespace forerun
