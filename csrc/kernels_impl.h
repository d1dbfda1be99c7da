// The kernels, written once over an instruction set `Isa`; each isa/*.cpp includes this inside its own namespace.
//
// No standard library here: a template shared between files of different compiler flags would be merged by the linker,
// and the processor might meet instructions that it does not have.
//
// An Isa provides F (16 floats) and I (16 ints) with their arithmetic, and three kinds of weights that are loaded once
// and used for many rows: PairW (16 outputs x 2 bfloat16), ByteW (16 outputs x 4 bytes), plain F. `PairA`, `ByteA` are
// the matching activations, broadcast to all outputs.

#include "kernels_products.h"
#include "kernels_rows.h"
#include "kernels_attention.h"

inline Kernels table(const char* name) {
    Kernels t{};
    t.name = name;
    const Act acts[FORMATS] = {ACT_F32, Isa::PAIR_ACT, ACT_GROUP8, ACT_BLOCK8, ACT_HALF8, ACT_HALF8, ACT_F32};
    for (int f = 0; f < FORMATS; f++) t.act[f] = acts[f];
    t.kv_act = Isa::KV_ACT;
    t.product[F32] = product<FloatProduct<F32Steps>>;
    t.product[BF16] = product<FloatProduct<BF16Steps>>;
    t.product[INT8] = product<Int8Product>;
    t.product[Q8_0] = product<Q8Product>;
    t.product[Q4_0] = product<Q4Product<Q4_0>>;
    t.product[Q4_1] = product<Q4Product<Q4_1>>;
    t.product[NF4] = product<NF4Product>;
    t.pack = pack;
    t.norm = norm;
    t.pack_query = pack_query;
    t.rotate = rotate;
    t.scores[KV_F32] = scores<KV_F32>;
    t.scores[KV_BF16] = scores<KV_BF16>;
    t.scores[KV_INT8] = scores<KV_INT8>;
    t.softmax = softmax;
    t.mix[KV_F32] = mix<KV_F32>;
    t.mix[KV_BF16] = mix<KV_BF16>;
    t.mix[KV_INT8] = mix<KV_INT8>;
    return t;
}
