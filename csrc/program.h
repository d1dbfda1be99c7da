// A network as a list of operations on numbered buffers, and one call that runs it.
//
// Buffers are rows of floats, padded to 32 columns; nothing reads the padding. All threads walk through the operations
// together; each operation shares its rows or strips among them and ends with a barrier. While a program runs it cannot
// be added to.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attention.h"
#include "pool.h"
#include "shapes.h"

namespace forerun {

class Arena;

template <class T> class Buffer {  // grows, never shrinks, aligned; contents are lost when it grows
  public:
    T* fit(size_t count) {
        if (count > size_) {
            if (count > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
            size_ = 0;
            memory_.reset();  // first, so that the old and the new need not fit both
            memory_.reset(static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(64))));
            std::fill_n(reinterpret_cast<uint8_t*>(memory_.get()), count * sizeof(T), uint8_t(0));
            size_ = count;
        }
        return memory_.get();
    }
    T* get() const { return memory_.get(); }

  private:
    struct Free {
        void operator()(T* p) const { ::operator delete(p, std::align_val_t(64)); }
    };
    std::unique_ptr<T, Free> memory_;
    size_t size_ = 0;
};

struct Matrix {
    Format format;
    size_t rows, cols;
    const uint8_t* data;
};

struct Result {
    size_t rows = 0, columns = 0, width = 0, ids = 0, taps = 0, fed = 0;
    std::unique_ptr<float[]> logits, hidden;  // [rows, width] of which `columns` are the head's; [fed, taps]
    std::vector<int> best;
};

class Program {
  public:
    explicit Program(const std::string& isa);  // std::invalid_argument if it does not run here

    int matrix(const std::string& format, size_t rows, size_t cols, std::shared_ptr<Arena> arena, size_t offset);
    int vector(const float* values, size_t count);
    int buffer(int width);
    int rope(const float* inv_freq, size_t count, float scale);
    void add(Op op);

    Result run(const KV& kv, const std::vector<int>& tokens, const std::vector<Item>& items, const float* features,
               size_t feature_rows, size_t feature_width, int threads);  // 0: all that there are

    const std::string isa;
    size_t weight_bytes() const { return weight_bytes_; }

  private:
    struct Run;
    std::unique_lock<std::mutex> still();  // held while the program changes
    void prepare(Run& run, size_t feature_rows);
    void step(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier);
    void linear(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier);
    void attend(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier);
    void turn(const Op& op, Run& run, int row, int kv_head, float* qkv) const;

    const Kernels* kernels_;
    std::vector<Matrix> matrices_;
    std::vector<std::vector<float>> vectors_;  // padded to strips
    Shapes shapes_;
    std::vector<float> inv_freq_, rope_scale_;  // of all rotations, one after another: for each angle
    std::vector<Op> ops_;
    std::vector<std::shared_ptr<Arena>> arenas_;
    size_t weight_bytes_ = 0;

    std::mutex turn_;  // whoever runs it or adds to it
    std::vector<Buffer<float>> buffers_;
    Buffer<uint8_t> packed_;
    Buffer<float> scales_, cos_, sin_;
    Buffer<int32_t> sums_;
    Attention attention_;
};

}  // namespace forerun
