#include "isa.h"

#include <stdexcept>

#include "cpu.h"

namespace forerun {

const Kernels* kernels_of(const std::string& name) {
    if (!isa_runs(name)) {
        std::string allowed;
        for (const auto& [isa, reason] : isas())
            if (reason.empty()) allowed += (allowed.empty() ? "" : ", ") + isa;
        throw std::invalid_argument("instruction set '" + name + "' does not run here (allowed: " + allowed + ")");
    }
#if FORERUN_X86
#ifndef FORERUN_NO_AMX
    if (name == "amx") return kernels_amx();
#endif
#ifndef FORERUN_NO_AMX_EMULATED
    if (name == "amx_emulated") return kernels_amx_emulated();
#endif
#ifndef FORERUN_NO_AVX512_BF16
    if (name == "avx512_bf16") return kernels_avx512_bf16();
#endif
#ifndef FORERUN_NO_AVX512
    if (name == "avx512") return kernels_avx512();
#endif
#ifndef FORERUN_NO_AVX2
    if (name == "avx2") return kernels_avx2();
#endif
#endif
    return kernels_portable();
}

Format format_of(const std::string& name) {
    for (int f = 0; f < FORMATS; f++)
        if (name == FORMAT_NAMES[f]) return Format(f);
    throw std::invalid_argument("format '" + name + "' is not known (allowed: f32, bf16, int8, q8_0, q4_0, q4_1, nf4)");
}

}  // namespace forerun
