// AVX-512 with BF16 and VNNI (Zen 4, Cooper Lake): pairs and fours of inputs in one instruction.
#include <immintrin.h>

#include "../kernels.h"

namespace forerun {
namespace {

#include "avx512_ops.h"
#include "avx512_bf16_isa.h"
#include "../kernels_math.h"
#include "../kernels_impl.h"

}  // namespace

const Kernels* kernels_avx512_bf16() {
    static const Kernels kernels = table("avx512_bf16");
    return &kernels;
}

}  // namespace forerun
