// Kernels and formats by name.
#pragma once
#include <string>

#include "kernels.h"

namespace forerun {

// The kernels of an instruction set, whether they run here or not; null if this build has none.
const Kernels* kernels_built(const std::string& name);
// The kernels of an instruction set; std::invalid_argument if it does not exist or does not run here.
const Kernels* kernels_of(const std::string& name);
Format format_of(const std::string& name);

}  // namespace forerun
