#include "isa.h"

#include <stdexcept>

#include "cpu.h"

namespace forerun {

const Kernels* kernels_built([[maybe_unused]] const std::string& name) {
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
    return name == "portable" ? kernels_portable() : nullptr;
}

const Kernels* kernels_of(const std::string& name) {
    if (isa_runs(name)) return kernels_built(name);
    std::string allowed;
    for (const auto& [isa, reason] : isas())
        if (reason.empty()) allowed += (allowed.empty() ? "" : ", ") + isa;
    throw std::invalid_argument("instruction set '" + name + "' does not run here (allowed: " + allowed + ")");
}

Format format_of(const std::string& name) {
    for (int f = 0; f < FORMATS; f++)
        if (name == FORMAT_NAMES[f]) return Format(f);
    std::string allowed;
    for (const char* format : FORMAT_NAMES) allowed += (allowed.empty() ? "" : ", ") + std::string(format);
    throw std::invalid_argument("unknown weight format '" + name + "' (allowed: " + allowed + ")");
}

}  // namespace forerun
