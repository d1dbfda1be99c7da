// AMX (Sapphire Rapids and later): products on tiles, everything else as AVX-512 with BF16 and VNNI.
#include <immintrin.h>

#include "../kernels.h"

#define TILE_CONFIGURE(config) _tile_loadconfig(config)
#define TILE_RELEASE() _tile_release()
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, base, stride) _tile_loadd(t, base, stride)
#define TILE_STORE(t, base, stride) _tile_stored(t, base, stride)
#define TILE_BF16(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILE_S8U8(c, a, b) _tile_dpbsud(c, a, b)

namespace forerun {
namespace {

#include "avx512_ops.h"
#include "avx512_bf16_isa.h"
#include "../kernels_math.h"
#include "../kernels_impl.h"
#include "amx_kernels.h"

}  // namespace

const Kernels* kernels_amx() {
    static const Kernels kernels = tile_table("amx");
    return &kernels;
}

}  // namespace forerun
