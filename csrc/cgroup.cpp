// The CPU quota of a container. Both generations of control groups, and hybrids of the two, are found in the wild.
#include "cpu.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace forerun {
namespace {

constexpr double NONE = std::numeric_limits<double>::infinity();

// cpu.max holds "quota period" or "max period", in microseconds.
double quota_v2(const std::string& folder) {
    std::ifstream file(folder + "/cpu.max");
    std::string quota;
    double period = 0;
    if (!(file >> quota >> period) || quota == "max" || period <= 0) return NONE;
    std::istringstream number(quota);
    double value = 0;
    return number >> value && value > 0 ? value / period : NONE;
}

// -1 is no quota.
double quota_v1(const std::string& folder) {
    std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
    double quota = 0, period = 0;
    if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return NONE;
    return quota / period;
}

// A quota binds everything below it, so the smallest on the way up counts. Inside a container the path is often that
// of the host and does not exist here; the mount's own root, reached last, then is the container's group.
double smallest(const std::string& mount, std::string path, double (*read)(const std::string&)) {
    double least = NONE;
    for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        least = std::min(least, read(mount + path));
        if (path.empty()) return least;
        const size_t slash = path.rfind('/');
        path.resize(slash == std::string::npos ? 0 : slash);
    }
}

bool has_cpu(const std::string& controllers) {
    std::istringstream list(controllers);
    for (std::string name; std::getline(list, name, ',');)
        if (name == "cpu") return true;
    return false;
}

}  // namespace

double cpu_quota(const std::string& cgroups, const std::string& root) {
    double least = NONE;
    std::ifstream file(cgroups);
    for (std::string line; std::getline(file, line);) {  // number:controllers:path
        const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
        if (controllers.empty()) {
            for (const char* mount : {"", "/unified"}) least = std::min(least, smallest(root + mount, path, quota_v2));
        } else if (has_cpu(controllers)) {
            for (const std::string& mount : {"/" + controllers, std::string("/cpu")})
                least = std::min(least, smallest(root + mount, path, quota_v1));
        }
    }
    return least;
}

}  // namespace forerun
