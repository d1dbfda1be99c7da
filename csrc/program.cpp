#include "program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "cpu.h"
#include "isa.h"
#include "memory.h"
#include "pack.h"
#include "vocab.h"

namespace forerun {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument(text); }

// The part of [0, count) that is this thread's.
struct Share {
    int first, end;
    Share(int count, int thread, int threads)
        : first(int(int64_t(count) * thread / threads)), end(int(int64_t(count) * (thread + 1) / threads)) {}
};

// The strips of a product: seven eighths are shared out beforehand, in one run for each thread, since every new place in
// memory costs a wait; the rest is taken in pieces by whoever is free, since no two cores are equally fast.
struct Strips {
    int count, first, end, all, piece;
    Strips(int count_, int thread, int threads) : count(count_) {
        const int each = int(int64_t(count) * 7 / 8 / threads);
        first = each * thread, end = first + each, all = each * threads;
        piece = std::max(1, (count - all) / (threads * 4));
    }
};

}  // namespace

struct Program::Run {
    const KV& kv;
    const std::vector<int>& tokens;
    const Forward& forward;
    const float* features;
    size_t feature_width;
    Result& result;
    std::vector<Unit> units;
    std::vector<std::atomic<int>> next;  // of each operation: what is left to take

    int rows(bool picked) const { return int(picked ? forward.wanted.size() : forward.rows.size()); }
};

Program::Program(const std::string& name) : isa(name), kernels_(kernels_of(name)) {}

int Program::matrix(const std::string& format, size_t rows, size_t cols, std::shared_ptr<Arena> arena, size_t offset) {
    const Format f = format_of(format);
    if (!rows || !cols || rows > size_t(1) << 31 || cols > size_t(1) << 31) refuse("a matrix needs rows and columns");
    if (f == INT8 && cols > 65536) refuse("int8 sums hold at most 65536 columns, got " + std::to_string(cols));
    const size_t bytes = matrix_bytes(f, rows, cols);
    if (offset % 64 || offset > arena->size() || bytes > arena->size() - offset)
        refuse("a matrix of " + std::to_string(bytes) + " bytes at " + std::to_string(offset) + " does not lie in an arena of " + std::to_string(arena->size()));
    matrices_.push_back({f, rows, cols, arena->data() + offset});
    arenas_.push_back(std::move(arena));
    weight_bytes_ += bytes;
    return int(matrices_.size()) - 1;
}

int Program::vector(const float* values, size_t count) {
    std::vector<float> padded_values(padded(count, STRIP));
    std::copy_n(values, count, padded_values.begin());
    vectors_.push_back(std::move(padded_values));
    vector_sizes_.push_back(count);
    return int(vectors_.size()) - 1;
}

int Program::buffer(int columns) {
    if (columns < 1) refuse("a buffer needs at least one column");
    widths_.push_back({columns, padded(size_t(columns), STRIP), false});
    buffers_.emplace_back();
    return int(widths_.size()) - 1;
}

void Program::rope(const float* inv_freq, size_t count, float scale) {
    inv_freq_.assign(inv_freq, inv_freq + count);
    rope_scale_ = scale;
}

const Program::Width& Program::width(int id, const char* what) const {
    if (id < 0 || size_t(id) >= widths_.size()) refuse(std::string(what) + " is buffer " + std::to_string(id) + ", there are " + std::to_string(widths_.size()));
    return widths_[id];
}

void Program::check_vector(int id, size_t count, const char* what) const {
    if (id < 0) return;
    if (size_t(id) >= vectors_.size()) refuse(std::string(what) + " is vector " + std::to_string(id) + ", there are " + std::to_string(vectors_.size()));
    if (vector_sizes_[id] != count) refuse(std::string(what) + " has " + std::to_string(vector_sizes_[id]) + " values, " + std::to_string(count) + " are needed");
}

void Program::check(const Op& op) const {
    const bool reads = op.kind != Op::EMBED && op.kind != Op::FEATURE, writes = op.kind != Op::TAP && op.kind != Op::LOGITS;
    const size_t in = reads ? width(op.in, "the source").columns : 0, out = writes ? width(op.out, "the result").columns : 0;
    const bool uses_matrix = op.kind == Op::EMBED || op.kind == Op::LINEAR || op.kind == Op::LOGITS;
    if (uses_matrix && (op.matrix < 0 || size_t(op.matrix) >= matrices_.size())) refuse("there is no matrix " + std::to_string(op.matrix));
    const auto fits = [&](size_t wanted, size_t got, const char* what) {
        if (wanted != got) refuse(std::string(what) + " has " + std::to_string(got) + " columns, " + std::to_string(wanted) + " are needed");
    };
    if (op.offset < 0 || (op.kind == Op::LINEAR && op.offset % STRIP)) refuse("a linear operation writes from a multiple of 32 on");
    switch (op.kind) {
        case Op::EMBED:
            fits(matrices_[op.matrix].cols, out, "the result");
            check_vector(op.norm, out, "the stand-in");
            break;
        case Op::NORM: check_vector(op.norm, in, "the norm"); [[fallthrough]];
        case Op::COPY:
            if (size_t(op.offset) + in > out) refuse("the result is too narrow");
            break;
        case Op::LINEAR:
        case Op::LOGITS: {
            const Matrix& m = matrices_[op.matrix];
            fits(m.cols, in, "the source");
            check_vector(op.norm, in, "the norm");
            check_vector(op.bias, m.rows, "the bias");
            if (op.kind == Op::LOGITS) {
                if (op.ids < 1 || size_t(op.ids) > m.rows) refuse("the head has " + std::to_string(m.rows) + " rows, real ids were said to be " + std::to_string(op.ids));
                break;
            }
            if (op.then == SILU && m.rows % STRIP) refuse("silu needs strips of 16 gate and 16 up rows");
            if (size_t(op.offset) + (op.then == SILU ? m.rows / 2 : m.rows) > out) refuse("the result is too narrow");
            break;
        }
        case Op::ATTEND: {
            const Heads& h = op.heads;
            if (h.heads < 1 || h.kv_heads < 1 || h.heads % h.kv_heads || h.head_dim < 2 || h.head_dim % 2 || h.window < 0 || op.layer < 0) refuse("heads do not fit each other");
            if (h.heads / h.kv_heads > UNIT_QUERIES * 4) refuse("more than 64 query heads share a key head");
            fits(size_t(h.heads + 2 * h.kv_heads) * h.head_dim, in, "the source");
            fits(size_t(h.heads) * h.head_dim, out, "the result");
            check_vector(op.norm, h.head_dim, "the norm of queries");
            check_vector(op.k_norm, h.head_dim, "the norm of keys");
            if (inv_freq_.size() != size_t(h.head_dim) / 2) refuse("the rotation has another head size: call rope first");
            break;
        }
        case Op::PICK: fits(in, out, "the result"); break;
        case Op::FEATURE:
        case Op::TAP: break;
    }
    if (reads && writes && op.kind != Op::PICK && widths_[op.in].picked != widths_[op.out].picked && op.out == op.in) refuse("rows differ");
}

void Program::add(Op op) {
    check(op);
    if (op.kind == Op::PICK) widths_[op.out].picked = true;
    else if (op.in >= 0 && op.out >= 0) widths_[op.out].picked = widths_[op.in].picked;
    ops_.push_back(op);
}

Result Program::run(const KV& kv, const std::vector<int>& tokens, const std::vector<Item>& items, const float* features,
                    size_t feature_rows, size_t feature_width) {
    std::lock_guard lock(turn_);
    const Forward forward(items, tokens.size(), kv);
    const int fed = int(forward.rows.size()), wanted = int(forward.wanted.size());
    const auto pool = Pool::get();
    const int threads = pool->count();  // not the process's count: somebody may be setting that now
    Result result;
    Run run{kv, tokens, forward, features, feature_width, result, {}, std::vector<std::atomic<int>>(ops_.size() + 1)};

    size_t widest = 0, features_used = 0;
    for (const Op& op : ops_) {
        if (op.kind == Op::EMBED)
            for (int token : tokens)
                if (!(op.norm >= 0 && token == op.ids) && (token < 0 || size_t(token) >= matrices_[op.matrix].rows))
                    refuse("token " + std::to_string(token) + " has no row in a table of " + std::to_string(matrices_[op.matrix].rows));
        if (op.kind == Op::LINEAR || op.kind == Op::LOGITS) widest = std::max(widest, padded(matrices_[op.matrix].cols, K_STEP));
        if (op.kind == Op::FEATURE) features_used += widths_[op.out].columns;
        if (op.kind == Op::TAP) result.taps += widths_[op.in].columns;
        if (op.kind == Op::LOGITS) {
            result.rows = size_t(wanted), result.ids = size_t(op.ids);
            result.columns = matrices_[op.matrix].rows, result.width = padded(result.columns, STRIP) + STRIP;  // rows a power of two apart would share cache sets
        }
        if (op.kind != Op::ATTEND) continue;
        if (op.heads.kv_heads != kv.kv_heads || op.heads.head_dim != kv.head_dim || op.layer >= kv.layers) refuse("this memory was made for other layers or heads");
        if (run.units.empty()) {
            run.units = units(forward, op.heads, threads);
            attention_.prepare(forward, kv, op.heads, threads);
        }
    }
    if (features_used && (feature_rows != tokens.size() || feature_width != features_used))
        refuse("features must be [" + std::to_string(tokens.size()) + ", " + std::to_string(features_used) + "]");
    for (size_t i = 0; i < buffers_.size(); i++) buffers_[i].fit(widths_[i].stride * size_t(widths_[i].picked ? wanted : fed));
    packed_.fit(widest * sizeof(float) * size_t(fed));
    scales_.fit(widest / (BLOCK / 2) * size_t(fed));
    sums_.fit(widest / (BLOCK / 2) * size_t(fed));
    cos_.fit(inv_freq_.size() * size_t(fed));
    sin_.fit(inv_freq_.size() * size_t(fed));
    result.fed = size_t(fed);
    result.best.resize(size_t(wanted));
    result.logits.reset(new float[std::max<size_t>(1, result.rows * result.width)]);
    result.hidden.reset(new float[std::max<size_t>(1, result.fed * result.taps)]);
    if (!fed) return result;
    pool->run([&](int thread, int, Barrier& barrier) {
        const Share mine(fed, thread, threads);
        for (int row = mine.first; row < mine.end; row++)
            for (size_t i = 0; i < inv_freq_.size(); i++) {
                const float angle = float(forward.rows[row].position) * inv_freq_[i];
                cos_.get()[row * inv_freq_.size() + i] = std::cos(angle) * rope_scale_;
                sin_.get()[row * inv_freq_.size() + i] = std::sin(angle) * rope_scale_;
            }
        for (size_t i = 0; i < ops_.size(); i++) {
            barrier.meet(threads);
            step(ops_[i], i, run, thread, threads, barrier);
        }
    });
    return result;
}

void Program::step(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier) {
    if (op.kind == Op::LINEAR || op.kind == Op::LOGITS) return linear(op, index, run, thread, threads, barrier);
    if (op.kind == Op::ATTEND) return attend(op, index, run, thread, threads, barrier);
    const bool picked = op.kind == Op::PICK || (op.in >= 0 && widths_[op.in].picked);
    const Share mine(run.rows(picked), thread, threads);
    const size_t columns = op.in >= 0 ? size_t(widths_[op.in].columns) : 0;
    size_t before = 0;  // columns of earlier features or taps
    for (size_t i = 0; i < index; i++)
        if (ops_[i].kind == op.kind) before += size_t(widths_[op.kind == Op::TAP ? ops_[i].in : ops_[i].out].columns);
    for (int row = mine.first; row < mine.end; row++) {
        const float* in = op.in >= 0 ? buffers_[op.in].get() + row * widths_[op.in].stride : nullptr;
        float* out = op.out >= 0 ? buffers_[op.out].get() + row * widths_[op.out].stride + op.offset : nullptr;
        switch (op.kind) {
            case Op::EMBED: {
                const Matrix& m = matrices_[op.matrix];
                if (op.norm >= 0 && run.tokens[row] == op.ids) {
                    std::copy_n(vectors_[op.norm].data(), m.cols, out);
                    break;
                }
                unpack_row(m.format, m.data, m.rows, m.cols, size_t(run.tokens[row]), out);
                break;
            }
            case Op::FEATURE: std::copy_n(run.features + row * run.feature_width + before, widths_[op.out].columns, out); break;
            case Op::NORM: kernels_->norm(in, vectors_[op.norm].data(), int(columns), op.eps, out); break;
            case Op::COPY: std::copy_n(in, columns, out); break;
            case Op::TAP: std::copy_n(in, columns, run.result.hidden.get() + row * run.result.taps + before); break;
            case Op::PICK: std::copy_n(buffers_[op.in].get() + run.forward.wanted[row] * widths_[op.in].stride, columns, out); break;
            default: break;
        }
    }
}

void Program::linear(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier) {
    const Matrix& m = matrices_[op.matrix];
    const Width& in = widths_[op.in];
    const int rows = run.rows(in.picked);
    if (!rows) return;
    const int k = int(padded(m.cols, K_STEP));
    const Act act = kernels_->act[m.format];
    const Packed a{act, k, size_t(k) * act_bytes(act), packed_.get(), scales_.get(), sums_.get(), act_group(act) ? k / act_group(act) : 0};
    const Strips sure(int(strips(m.rows)), thread, threads);
    const uint8_t* begin = m.data + size_t(sure.first) * strip_bytes(m.format, m.cols);
    for (int line = 0; line < 32; line++) __builtin_prefetch(begin + 64 * line);  // it comes while the rows are packed
    const Share mine(rows, thread, threads);
    for (int row = mine.first; row < mine.end; row++)
        kernels_->pack(buffers_[op.in].get() + row * in.stride, op.norm >= 0 ? vectors_[op.norm].data() : nullptr, in.columns, op.eps, a, row);
    barrier.meet(threads);

    const bool last = op.kind == Op::LOGITS;
    const Product product{m.data, strip_bytes(m.format, m.cols), a, rows,
                          last ? run.result.logits.get() : buffers_[op.out].get() + op.offset,
                          last ? run.result.width : widths_[op.out].stride,
                          op.bias >= 0 ? vectors_[op.bias].data() : nullptr, op.then};
    kernels_->product[m.format](product, sure.first, sure.end);
    for (int first; (first = sure.all + run.next[index].fetch_add(sure.piece, std::memory_order_relaxed)) < sure.count;)
        kernels_->product[m.format](product, first, std::min(sure.count, first + sure.piece));
    if (!last) return;
    barrier.meet(threads);
    for (int row = mine.first; row < mine.end; row++)
        run.result.best[row] = int(argmax(run.result.logits.get() + row * run.result.width, run.result.ids));
}

// Normalises and rotates one key head and its queries, and keeps the key and value.
void Program::turn(const Op& op, Run& run, int row, int kv_head, float* qkv) const {
    const Heads& h = op.heads;
    const int dim = h.head_dim, half = dim / 2;
    const float *cos = cos_.get() + size_t(row) * half, *sin = sin_.get() + size_t(row) * half;
    const auto treat = [&](float* x, int norm) {
        if (norm >= 0) kernels_->norm(x, vectors_[norm].data(), dim, op.eps, x);
        kernels_->rotate(x, cos, sin, half);
    };
    for (int head = kv_head * h.group(); head < (kv_head + 1) * h.group(); head++) treat(qkv + head * dim, op.norm);
    float* key = qkv + (h.heads + kv_head) * dim;
    treat(key, op.k_norm);
    run.kv.put(op.layer, kv_head, run.forward.rows[row].slot, key, key + h.kv_heads * dim);
}

void Program::attend(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier) {
    const Heads& h = op.heads;
    float* qkv = buffers_[op.in].get();
    const size_t stride = widths_[op.in].stride;
    const Share mine(run.rows(false) * h.kv_heads, thread, threads);
    for (int i = mine.first; i < mine.end; i++) turn(op, run, i / h.kv_heads, i % h.kv_heads, qkv + i / h.kv_heads * stride);
    barrier.meet(threads);
    const int count = int(run.units.size());
    for (int i; (i = run.next[index].fetch_add(1, std::memory_order_relaxed)) < count;)
        attention_.run(run.units[i], run.forward, run.kv, *kernels_, h, op.layer, qkv, stride, buffers_[op.out].get(), widths_[op.out].stride, thread);
}

}  // namespace forerun
