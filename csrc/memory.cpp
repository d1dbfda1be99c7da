#include "memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#define FORERUN_POSIX 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace forerun {
namespace {

constexpr size_t HUGE_PAGE = size_t(2) << 20;
constexpr size_t PIECE = size_t(8) << 20;  // bytes of one read

size_t rounded(size_t bytes) {
    if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
    return std::max<size_t>((bytes + HUGE_PAGE - 1) / HUGE_PAGE, 1) * HUGE_PAGE;
}

// What this process can have at most. A system that overcommits would promise more and kill the process on touch.
uint64_t limit() {
    uint64_t least = std::numeric_limits<uint64_t>::max();
#if defined(FORERUN_POSIX) && defined(_SC_PHYS_PAGES)
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) least = uint64_t(pages) * uint64_t(page);
#endif
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        std::ifstream file(path);
        uint64_t bytes = 0;
        if (file >> bytes && bytes > 0) least = std::min(least, bytes);  // "max" is no number: no limit
    }
    return least;
}

[[noreturn]] void too_short(const std::string& path, uint64_t has, uint64_t offset, size_t size) {
    throw FileError(path + " has " + std::to_string(has) + " bytes, " + std::to_string(size) +
                    " are needed from byte " + std::to_string(offset) + " on: it is cut short");
}

#ifdef FORERUN_POSIX

struct Descriptor {
    int fd;
    ~Descriptor() { close(fd); }
};

// Fill [out, out + count) from `at` on; 0, or the errno, or -1 at the end of the file.
int fill(int fd, uint8_t* out, size_t count, uint64_t at) {
    while (count > 0) {
        const ssize_t got = pread(fd, out, std::min(count, PIECE), off_t(at));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return -1;
        out += got, at += uint64_t(got), count -= size_t(got);
    }
    return 0;
}

#endif

}  // namespace

#ifdef FORERUN_POSIX

Arena::Arena(size_t bytes) : size_(bytes) {
    const size_t usable = rounded(bytes);
    if (usable > limit()) throw std::bad_alloc();
    reserved_ = usable + HUGE_PAGE;  // room to begin at a multiple of a huge page
    void* got = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) throw std::bad_alloc();
    const auto start = reinterpret_cast<uintptr_t>(got);
    const uintptr_t first = (start + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (first > start) munmap(got, first - start);
    if (const size_t behind = start + HUGE_PAGE - first; behind > 0)
        munmap(reinterpret_cast<void*>(first + usable), behind);
    data_ = reinterpret_cast<uint8_t*>(first);
    reserved_ = usable;
#ifdef MADV_HUGEPAGE
    madvise(data_, usable, MADV_HUGEPAGE);  // a refusal costs speed only
#endif
}

Arena::~Arena() { munmap(data_, reserved_); }

void Arena::read(const std::string& path, uint64_t offset) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) throw FileError("cannot open " + path + ": " + std::generic_category().message(errno));
    const Descriptor held{fd};
    struct stat facts {};
    if (fstat(fd, &facts) != 0) throw FileError("cannot read " + path + ": " + std::generic_category().message(errno));
    const uint64_t has = uint64_t(std::max<off_t>(facts.st_size, 0));
    if (offset > has || has - offset < size_) too_short(path, has, offset, size_);
    // Two readers: with the file in the page cache the time is copying and zeroing pages, which one core does not fill.
    const size_t half = size_ > 2 * PIECE ? size_ / 2 / HUGE_PAGE * HUGE_PAGE : size_;
    int later = 0;
    std::thread other;
    if (half < size_) {
        try {
            other = std::thread([&] { later = fill(fd, data_ + half, size_ - half, offset + half); });
        } catch (const std::system_error&) {  // no more threads: one reader does
            later = fill(fd, data_ + half, size_ - half, offset + half);
        }
    }
    const int first = fill(fd, data_, half, offset);
    if (other.joinable()) other.join();
    const int failed = first != 0 ? first : later;
    if (failed < 0) too_short(path, has, offset, size_);  // it shrank meanwhile
    if (failed > 0) throw FileError("cannot read " + path + ": " + std::generic_category().message(failed));
}

#else

Arena::Arena(size_t bytes) : size_(bytes) {
    reserved_ = rounded(bytes);
    if (reserved_ > limit()) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(::operator new(reserved_, std::align_val_t(64)));
    std::memset(data_, 0, reserved_);
}

Arena::~Arena() { ::operator delete(data_, std::align_val_t(64)); }

void Arena::read(const std::string& path, uint64_t offset) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) throw FileError("cannot open " + path);
    const uint64_t has = uint64_t(file.tellg());
    if (offset > has || has - offset < size_) too_short(path, has, offset, size_);
    file.seekg(std::streamoff(offset));
    if (!file.read(reinterpret_cast<char*>(data_), std::streamsize(size_))) throw FileError("cannot read " + path);
}

#endif

}  // namespace forerun
