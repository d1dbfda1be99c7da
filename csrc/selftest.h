// Kernels compared with the portable ones before they are used: an instruction set that says one thing in CPUID and does
// another (an emulator, a hypervisor, an erratum, a fault of ours on a machine that we never saw) is left out, not believed.
#pragma once
#include <string>

#include "kernels.h"

namespace forerun {

// "" if both sets of kernels compute the same up to rounding, else the part that they differ in. Takes a few milliseconds.
std::string disagreement(const Kernels& kernels, const Kernels& reference);

}  // namespace forerun
