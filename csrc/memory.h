// Memory for weights and for keys and values: aligned, zeroed, in huge pages where the system gives them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace forerun {

// A file that cannot be read; Python sees an OSError.
struct FileError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Arena {
public:
    explicit Arena(size_t bytes);  // std::bad_alloc
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    uint8_t* data() const { return data_; }
    size_t size() const { return size_; }

    // Fill all of it from a file, from byte `offset` on; FileError if the file is unreadable or too short.
    void read(const std::string& path, uint64_t offset);

private:
    uint8_t* data_ = nullptr;
    size_t size_ = 0;
    size_t reserved_ = 0;  // what was asked of the system
};

}  // namespace forerun
