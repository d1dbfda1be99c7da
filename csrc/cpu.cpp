#include "cpu.h"

#include "bind.h"
#include "isa.h"
#include "selftest.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <thread>

#if FORERUN_X86
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif
#ifdef __linux__
#include <cerrno>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace forerun {
namespace {

#if FORERUN_X86

struct Registers {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t sub) {
    Registers r;
#ifdef _MSC_VER
    int out[4];
    __cpuidex(out, static_cast<int>(leaf), static_cast<int>(sub));
    r = {uint32_t(out[0]), uint32_t(out[1]), uint32_t(out[2]), uint32_t(out[3])};
#else
    __get_cpuid_count(leaf, sub, &r.eax, &r.ebx, &r.ecx, &r.edx);
#endif
    return r;
}

// The register files that the system saves when it switches threads. An instruction that the processor has is of no
// use, or traps, where the system does not. Not _xgetbv(): that needs -mxsave for the whole file.
uint64_t saved_registers() {
#ifdef _MSC_VER
    return _xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t(high) << 32 | low;
#endif
}

struct Need {
    const char* feature;
    bool has;
};

// "" if all are there, else those that are not.
std::string lacking(std::initializer_list<Need> needs, bool saved, const char* registers) {
    std::string missing;
    for (const Need& need : needs)
        if (!need.has) missing += (missing.empty() ? "" : ", ") + std::string(need.feature);
    if (!missing.empty()) return "the processor lacks " + missing;
    if (!saved) return "the operating system does not save the " + std::string(registers) + " registers";
    return "";
}

// Tiles are 8 KB of state a thread, so Linux hands them out on request only. Asked once; holds for the process.
std::string tile_permission() {
#ifdef __linux__
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0) return "";
    return std::string("the kernel refused the tile registers (arch_prctl: ") + std::strerror(errno) + ")";
#else
    return "tile registers are asked for on Linux only";
#endif
}

struct Found {
    std::string avx2, avx512, avx512_bf16, amx;
};

Found detect() {
    const uint32_t leaves = cpuid(0, 0).eax;
    const Registers one = cpuid(1, 0), seven = leaves >= 7 ? cpuid(7, 0) : Registers{},
                    more = seven.eax >= 1 ? cpuid(7, 1) : Registers{};
    const auto bit = [](uint32_t word, int n) { return (word >> n & 1) != 0; };
    const uint64_t xcr0 = bit(one.ecx, 27) ? saved_registers() : 0;
    const auto saves = [xcr0](uint64_t mask) { return (xcr0 & mask) == mask; };

    Found f;
    f.avx2 = lacking({{"avx2", bit(seven.ebx, 5)}, {"fma", bit(one.ecx, 12)}, {"f16c", bit(one.ecx, 29)}},
                     saves(0x6), "AVX");
    f.avx512 = !f.avx2.empty() ? f.avx2
                               : lacking({{"avx512f", bit(seven.ebx, 16)},
                                          {"avx512dq", bit(seven.ebx, 17)},
                                          {"avx512bw", bit(seven.ebx, 30)},
                                          {"avx512vl", bit(seven.ebx, 31)}},
                                         saves(0xe6), "AVX-512");
    f.avx512_bf16 = !f.avx512.empty() ? f.avx512
                                      : lacking({{"avx512_bf16", bit(more.eax, 5)}, {"avx512_vnni", bit(seven.ecx, 11)}},
                                                true, "");
    f.amx = !f.avx512_bf16.empty() ? f.avx512_bf16
                                   : lacking({{"amx-tile", bit(seven.edx, 24)},
                                              {"amx-bf16", bit(seven.edx, 22)},
                                              {"amx-int8", bit(seven.edx, 25)}},
                                             saves(0x60000), "tile");
    if (f.amx.empty()) f.amx = kernels_built("amx") ? tile_permission() : "";
    return f;
}

#endif

std::vector<std::pair<std::string, std::string>> find_isas() {
#if FORERUN_X86
    const Found f = detect();
    std::vector<std::pair<std::string, std::string>> all = {
        {"amx", f.amx}, {"avx512_bf16", f.avx512_bf16}, {"avx512", f.avx512}, {"avx2", f.avx2}, {"portable", ""}};
#else
    const std::string other = "for x86-64 processors";
    std::vector<std::pair<std::string, std::string>> all = {
        {"amx", other}, {"avx512_bf16", other}, {"avx512", other}, {"avx2", other}, {"portable", ""}};
#endif
    for (auto& [name, reason] : all) {
        if (!reason.empty()) continue;
        const Kernels* kernels = kernels_built(name);
        if (!kernels) {
            reason = "left out of this build: the compiler did not know it";
        } else if (const std::string part = disagreement(*kernels, *kernels_portable()); !part.empty()) {
            reason = "its kernels computed something else than the portable ones: " + part;
        }
    }
    return all;
}

const std::vector<std::pair<std::string, std::string>>& known_isas() {
    static const auto all = find_isas();
    return all;
}

int affinity() {
#ifdef __linux__
    for (int most = 1024; most <= 1 << 20; most *= 2) {  // a machine may have more cores than a cpu_set_t has bits
        cpu_set_t* set = CPU_ALLOC(most);
        if (set == nullptr) break;
        const size_t size = CPU_ALLOC_SIZE(most);
        const bool ok = sched_getaffinity(0, size, set) == 0;
        const int count = ok ? CPU_COUNT_S(size, set) : 0;
        const bool too_small = !ok && errno == EINVAL;
        CPU_FREE(set);
        if (ok) return count;
        if (!too_small) break;
    }
#endif
    return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> isas() {
    auto all = known_isas();
    all.emplace_back("amx_emulated", "for tests only");
    return all;
}

bool isa_runs(const std::string& name) {
    for (const auto& [known, reason] : known_isas()) {
        if (known == name) return reason.empty();
        if (name == "amx_emulated" && known == "avx512_bf16") return reason.empty() && kernels_built(name);
    }
    return false;
}

int cores() {
    const double quota = cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    const int free = affinity();
    return std::max(1, quota < free ? static_cast<int>(std::ceil(quota)) : free);
}

void bind_cpu(nanobind::module_& m) {
    m.def("isas", [] {
        nanobind::dict found;
        for (const auto& [name, reason] : isas()) found[name.c_str()] = reason;
        return found;
    });
    m.def("isa_runs", &isa_runs, nanobind::arg("name"));
    m.def("disagreement", [](const std::string& name) {
        const Kernels* kernels = isa_runs(name) ? kernels_built(name) : nullptr;
        if (!kernels) throw std::invalid_argument("instruction set '" + name + "' does not run here");
        return disagreement(*kernels, *kernels_portable());
    }, nanobind::arg("name"));
    m.def("cores", &cores);
    m.def("cpu_quota", &cpu_quota, nanobind::arg("cgroups") = "/proc/self/cgroup",
          nanobind::arg("root") = "/sys/fs/cgroup");
}

}  // namespace forerun
