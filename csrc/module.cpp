// The module forerun.native._ext; src/forerun/native/_ext.pyi is its Python side.
#include "bind.h"

NB_MODULE(_ext, m) {
    m.doc() = "The compiled part of forerun: packed weights and one native call per forward.";
    forerun::bind_cpu(m);
    forerun::bind_memory(m);
    forerun::bind_pack(m);
    forerun::bind_vocab(m);
    forerun::bind_program(m);
}
