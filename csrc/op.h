// One operation of a program.
#pragma once
#include "kernels.h"

namespace forerun {

struct Heads {  // geometry of one attention
    int heads = 0, kv_heads = 0, head_dim = 0, window = 0, rope = 0;
    float scale = 0;  // of scores; 0: the root of head_dim, inverted
    int group() const { return heads / kv_heads; }
};

struct Op {
    enum Kind { EMBED, FEATURE, NORM, COPY, LINEAR, ATTEND, TAP, PICK, LOGITS } kind;
    int in = -1, out = -1, matrix = -1, bias = -1, norm = -1, k_norm = -1, offset = 0, layer = 0;
    int ids = 0;  // of the logits: how many rows of the head are real tokens; of an embedding: the id that has a stand-in
    float eps = 0, scale = 1;  // scale: of an embedding
    Then then = STORE;
    Heads heads{};

    bool reads() const { return kind != EMBED && kind != FEATURE; }
    bool writes() const { return kind != TAP && kind != LOGITS; }
    bool multiplies() const { return kind == LINEAR || kind == LOGITS; }
    bool adds() const { return then == ADD || then == ADD_SILU; }  // to what is there
    bool gates() const { return then == SILU || then == GELU; }
};

}  // namespace forerun
