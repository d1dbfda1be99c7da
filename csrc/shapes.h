// What is known of a program's buffers while it is put together: which rows each has, and which columns were written.
//
// Every operation is checked when it is added, so that a program that was accepted reads nothing that nobody wrote and
// writes nothing that is not its own, whatever it is run on.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "op.h"

namespace forerun {

constexpr size_t MOST_SIDE = size_t(1) << 30;  // rows or columns of anything: far above any model, far below overflow

enum class Rows { UNKNOWN, FED, WANTED };  // one for each fed token, or for each wanted row

struct Slot {  // a buffer
    size_t columns = 0, stride = 0;
    Rows rows = Rows::UNKNOWN;
    std::vector<std::pair<size_t, size_t>> written;  // ranges of columns, ascending, that neither touch nor overlap

    void write(size_t first, size_t end);
    size_t first_unwritten(size_t first, size_t end) const;  // `end` if there is none
};

class Shapes {
  public:
    int matrix(size_t rows, size_t cols);
    int vector(size_t count);
    int buffer(int columns);
    int rope(size_t count);
    // Throws std::invalid_argument, and nothing has changed then.
    void add(Op& op);

    const Slot& slot(int id) const { return slots_[size_t(id)]; }
    const std::vector<Slot>& slots() const { return slots_; }

  private:
    struct Matrix {
        size_t rows, cols;
    };
    const Matrix& matrix_of(const Op& op) const;
    const Slot& known(int id, const char* what) const;
    void check_vector(int id, size_t count, const char* what) const;
    void check_heads(const Op& op, const Slot& in) const;
    size_t check_sizes(Op& op) const;  // of its parts, and of what it writes: so many columns
    Rows rows_of(const Op& op) const;
    void check_read(int id, size_t first, size_t end) const;

    std::vector<Matrix> matrices_;
    std::vector<size_t> vectors_;
    std::vector<Slot> slots_;
    std::vector<int> layers_;  // that have their attention
    Heads heads_{};            // of all attentions
    size_t rope_ = 0;          // angles of each rotation
    int ropes_ = 0;
    bool ended_ = false;
};

}  // namespace forerun
