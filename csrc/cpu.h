// What this processor, this system and this build can run, and on how many cores.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace forerun {

// Instruction sets by name, best first, each with "" or the reason why it does not run here. The last, "amx_emulated",
// always has a reason: it exists for tests and is never chosen by itself; isa_runs() says whether it may be asked for.
std::vector<std::pair<std::string, std::string>> isas();

// Whether kernels of this name may be used here.
bool isa_runs(const std::string& name);

// CPUs' worth of time that the control groups of a process allow, infinity if they say nothing: `cgroups` lists the
// groups as /proc/self/cgroup does, `root` is where their file systems are mounted.
double cpu_quota(const std::string& cgroups, const std::string& root);

// Cores that this process may use: its affinity, and the CPU quota of its cgroups, rounded up; at least 1.
int cores();

}  // namespace forerun
