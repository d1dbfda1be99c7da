#include "shapes.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace forerun {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument(text); }

void expect(size_t wanted, size_t got, const char* what) {
    if (wanted != got) refuse(std::string(what) + " has " + std::to_string(got) + " columns, " + std::to_string(wanted) + " are needed");
}

}  // namespace

void Slot::write(size_t first, size_t end) {
    written.emplace_back(first, end);
    std::sort(written.begin(), written.end());
    size_t last = 0;
    for (size_t i = 1; i < written.size(); i++)
        if (written[i].first <= written[last].second) written[last].second = std::max(written[last].second, written[i].second);
        else written[++last] = written[i];
    written.resize(last + 1);
}

size_t Slot::first_unwritten(size_t first, size_t end) const {
    for (const auto& [from, to] : written)
        if (from <= first && first < to) first = to;
    return std::min(first, end);
}

int Shapes::matrix(size_t rows, size_t cols) {
    if (!rows || !cols || rows > MOST_SIDE || cols > MOST_SIDE) refuse("a matrix has " + std::to_string(rows) + " rows and " + std::to_string(cols) + " columns (allowed: 1 to 2^30)");
    matrices_.push_back({rows, cols});
    return int(matrices_.size()) - 1;
}

int Shapes::vector(size_t count) {
    if (!count || count > MOST_SIDE) refuse("a vector has " + std::to_string(count) + " values (allowed: 1 to 2^30)");
    vectors_.push_back(count);
    return int(vectors_.size()) - 1;
}

int Shapes::buffer(int columns) {
    if (columns < 1 || size_t(columns) > MOST_SIDE) refuse("a buffer has " + std::to_string(columns) + " columns (allowed: 1 to 2^30)");
    Slot slot;
    slot.columns = size_t(columns), slot.stride = padded(slot.columns, STRIP);
    slots_.push_back(std::move(slot));
    return int(slots_.size()) - 1;
}

int Shapes::rope(size_t count) {
    if (!count || count > MOST_SIDE) refuse("a rotation has " + std::to_string(count) + " angles, half a head's size is needed");
    if (ropes_ && count != rope_) refuse("all rotations of a program have the same number of angles: " + std::to_string(rope_));
    rope_ = count;
    return ropes_++;
}

const Slot& Shapes::known(int id, const char* what) const {
    if (id < 0 || size_t(id) >= slots_.size()) refuse(std::string(what) + " is buffer " + std::to_string(id) + ", there are " + std::to_string(slots_.size()));
    return slots_[size_t(id)];
}

const Shapes::Matrix& Shapes::matrix_of(const Op& op) const {
    if (op.matrix < 0 || size_t(op.matrix) >= matrices_.size()) refuse("there is no matrix " + std::to_string(op.matrix));
    return matrices_[size_t(op.matrix)];
}

void Shapes::check_vector(int id, size_t count, const char* what) const {
    if (id == -1) return;
    if (id < 0 || size_t(id) >= vectors_.size()) refuse(std::string(what) + " is vector " + std::to_string(id) + ", there are " + std::to_string(vectors_.size()));
    if (vectors_[size_t(id)] != count) refuse(std::string(what) + " has " + std::to_string(vectors_[size_t(id)]) + " values, " + std::to_string(count) + " are needed");
}

void Shapes::check_heads(const Op& op, const Slot& in) const {
    constexpr int MOST = 1 << 16;
    const Heads& h = op.heads;
    for (int size : {h.heads, h.kv_heads, h.head_dim})
        if (size < 1 || size > MOST) refuse("heads, kv_heads and head_dim must be 1 to 65536, got " + std::to_string(size));
    if (h.heads % h.kv_heads || h.head_dim % 2 || h.window < 0 || op.layer < 0) refuse("heads do not fit each other: kv_heads divides heads, head_dim is even, window and layer are not negative");
    if (h.group() > 64) refuse("more than 64 query heads share a key head");
    expect(size_t(h.heads + 2 * h.kv_heads) * size_t(h.head_dim), in.columns, "the source");
    expect(size_t(h.heads) * size_t(h.head_dim), known(op.out, "the result").columns, "the result");
    check_vector(op.norm, size_t(h.head_dim), "the norm of queries");
    check_vector(op.k_norm, size_t(h.head_dim), "the norm of keys");
    if (rope_ != size_t(h.head_dim) / 2) refuse("the rotation has " + std::to_string(rope_) + " angles, " + std::to_string(h.head_dim / 2) + " are needed: call rope first");
    if (h.rope < 0 || h.rope >= ropes_) refuse("there is no rotation " + std::to_string(h.rope));
    if (!(h.scale >= 0) || std::isinf(h.scale)) refuse("scale must be a number from 0 on");
    if (heads_.heads && (h.heads != heads_.heads || h.kv_heads != heads_.kv_heads || h.head_dim != heads_.head_dim))
        refuse("all attentions of a program have the same heads, kv_heads and head_dim");
    if (std::count(layers_.begin(), layers_.end(), op.layer)) refuse("layer " + std::to_string(op.layer) + " has an attention already, whose keys and values these would replace");
}

size_t Shapes::check_sizes(Op& op) const {
    const Slot none, &in = op.reads() ? known(op.in, "the source") : none, &out = op.writes() ? known(op.out, "the result") : none;
    if (op.offset < 0 || (op.kind == Op::LINEAR && op.offset % STRIP)) refuse("the first column is " + std::to_string(op.offset) + ": it is not negative, and of a linear operation a multiple of 32");
    if (!(op.eps >= 0) || std::isinf(op.eps)) refuse("eps must be a number from 0 on");
    if (op.kind == Op::EMBED) {
        expect(matrix_of(op).cols, out.columns, "the result");
        check_vector(op.norm, out.columns, "the stand-in");
        if (op.norm >= 0 && op.ids < 0) refuse("a stand-in needs the id that it stands in for");
        if (!std::isfinite(op.scale)) refuse("scale must be a finite number");
    } else if (op.kind == Op::NORM) {
        if (op.norm < 0) refuse("a norm needs its weight");
        if (op.adds() && op.in == op.out) refuse("a norm that adds needs a source of its own, which it uses up");
        check_vector(op.norm, in.columns, "the norm");
    } else if (op.multiplies()) {
        const Matrix& m = matrix_of(op);
        expect(m.cols, in.columns, "the source");
        check_vector(op.norm, in.columns, "the norm");
        check_vector(op.bias, m.rows, "the bias");
        if (op.gates() && m.rows % STRIP) refuse("a gate needs strips of 16 gate and 16 up rows");
        if (op.kind == Op::LOGITS && !op.ids) op.ids = int(m.rows);
        if (op.kind == Op::LOGITS && (op.ids < 1 || size_t(op.ids) > m.rows)) refuse("the head has " + std::to_string(m.rows) + " rows, real ids were said to be " + std::to_string(op.ids));
    } else if (op.kind == Op::ATTEND) {
        check_heads(op, in);
    } else if (op.kind == Op::PICK) {
        expect(in.columns, out.columns, "the result");
    }
    if (!op.writes()) return 0;
    size_t count = out.columns;
    if (op.kind == Op::NORM || op.kind == Op::COPY) count = in.columns;
    if (op.kind == Op::LINEAR) count = op.gates() ? matrix_of(op).rows / 2 : matrix_of(op).rows;
    const size_t end = size_t(op.offset) + count;
    if (end > out.columns) refuse("the result is too narrow: it has " + std::to_string(out.columns) + " columns, " + std::to_string(end) + " are needed");
    // A product writes whole strips: what pads its last must be the buffer's own padding, not a neighbour's columns.
    if (op.kind == Op::LINEAR && !op.gates() && end % STRIP && end != out.columns) refuse("a linear operation that ends before column " + std::to_string(end) + " of " + std::to_string(out.columns) + " would write over what follows: it ends at a multiple of 32, or with the buffer");
    return count;
}

// The rows that an operation computes, if its source has the right ones.
Rows Shapes::rows_of(const Op& op) const {
    if (!op.reads()) return Rows::FED;
    const Rows rows = slot(op.in).rows;
    if ((op.kind == Op::PICK || op.kind == Op::TAP || op.kind == Op::ATTEND) && rows == Rows::WANTED)
        refuse("the source has the wanted rows only: pick, tap and attend need those of all fed tokens");
    if (op.kind == Op::LOGITS && rows == Rows::FED) refuse("the source has the rows of all fed tokens: pick the wanted ones before the logits");
    return op.kind == Op::PICK ? Rows::WANTED : rows;
}

void Shapes::check_read(int id, size_t first, size_t end) const {
    const size_t gap = slot(id).first_unwritten(first, end);
    if (gap < end) refuse("column " + std::to_string(gap) + " of buffer " + std::to_string(id) + " is read before anything wrote it (an attention uses its source up, and so does a norm that adds)");
}

void Shapes::add(Op& op) {
    if (ended_) refuse("the logits are the last operation");
    const size_t first = size_t(op.offset), count = check_sizes(op);
    const Rows rows = rows_of(op);
    if (op.reads()) check_read(op.in, 0, slot(op.in).columns);
    if (op.writes()) {
        Slot& out = slots_[size_t(op.out)];
        if (op.kind == Op::COPY && op.in == op.out) refuse("a buffer is copied onto itself");
        if (out.rows != Rows::UNKNOWN && out.rows != rows) refuse("buffer " + std::to_string(op.out) + " has " + (out.rows == Rows::FED ? "the rows of all fed tokens" : "the wanted rows only") + ": it cannot hold others too");
        if (op.adds()) check_read(op.out, first, first + count);
        out.rows = rows;
        out.write(first, first + count);
    }
    if (op.kind == Op::ATTEND || (op.kind == Op::NORM && op.adds())) slots_[size_t(op.in)].written.clear();  // worked on where it lay
    if (op.kind == Op::ATTEND) {
        heads_ = op.heads;
        layers_.push_back(op.layer);
    }
    ended_ = op.kind == Op::LOGITS;
}

}  // namespace forerun
