#include "program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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
    int64_t first, end;
    Share(int64_t count, int thread, int threads) : first(count * thread / threads), end(count * (thread + 1) / threads) {}
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
    int threads;
    Result result;
    std::vector<Unit> units;
    std::vector<std::atomic<int>> next;  // of each operation: what is left to take

    size_t fed() const { return forward.rows.size(); }
    size_t rows(Rows which) const { return which == Rows::WANTED ? forward.wanted.size() : fed(); }
};

Program::Program(const std::string& name) : isa(name), kernels_(kernels_of(name)) {}

std::unique_lock<std::mutex> Program::still() {
    std::unique_lock lock(turn_, std::try_to_lock);
    if (!lock) refuse("the program runs in another thread: it can be added to before or after");
    return lock;
}

int Program::matrix(const std::string& format, size_t rows, size_t cols, std::shared_ptr<Arena> arena, size_t offset) {
    const auto lock = still();
    const Format f = format_of(format);
    const size_t bytes = checked_matrix_bytes(f, rows, cols);
    if (offset % 64 || offset > arena->size() || bytes > arena->size() - offset)
        refuse("a matrix of " + std::to_string(bytes) + " bytes at " + std::to_string(offset) + " does not lie in an arena of " + std::to_string(arena->size()) + ", from a multiple of 64 on");
    const int id = shapes_.matrix(rows, cols);
    matrices_.push_back({f, rows, cols, arena->data() + offset});
    arenas_.push_back(std::move(arena));
    weight_bytes_ += bytes;
    return id;
}

int Program::vector(const float* values, size_t count) {
    const auto lock = still();
    const int id = shapes_.vector(count);
    vectors_.emplace_back(padded(count, STRIP));
    std::copy_n(values, count, vectors_.back().begin());
    return id;
}

int Program::buffer(int columns) {
    const auto lock = still();
    const int id = shapes_.buffer(columns);
    buffers_.emplace_back();
    return id;
}

int Program::rope(const float* inv_freq, size_t count, float scale) {
    const auto lock = still();
    const int id = shapes_.rope(count);
    inv_freq_.insert(inv_freq_.end(), inv_freq, inv_freq + count);
    rope_scale_.resize(inv_freq_.size(), scale);
    return id;
}

void Program::add(Op op) {
    const auto lock = still();
    shapes_.add(op);
    ops_.push_back(op);
}

// Whether the operations can do this forward, and room for it.
void Program::prepare(Run& run, size_t feature_rows) {
    size_t widest = 0, features = 0;
    Result& result = run.result;
    for (const Op& op : ops_) {
        if (op.kind == Op::EMBED)
            for (int token : run.tokens)
                if (!(op.norm >= 0 && token == op.ids) && (token < 0 || size_t(token) >= matrices_[op.matrix].rows))
                    refuse("token " + std::to_string(token) + " has no row in a table of " + std::to_string(matrices_[op.matrix].rows));
        if (op.multiplies()) widest = std::max(widest, padded(matrices_[op.matrix].cols, K_STEP));
        if (op.kind == Op::FEATURE) features += shapes_.slot(op.out).columns;
        if (op.kind == Op::TAP) result.taps += shapes_.slot(op.in).columns;
        if (op.kind == Op::LOGITS) {
            result.rows = run.rows(Rows::WANTED), result.ids = size_t(op.ids);
            result.columns = matrices_[op.matrix].rows, result.width = padded(result.columns, STRIP) + STRIP;  // rows a power of two apart would share cache sets
        }
        if (op.kind != Op::ATTEND) continue;
        if (op.heads.kv_heads != run.kv.kv_heads || op.heads.head_dim != run.kv.head_dim || op.layer >= run.kv.layers) refuse("this memory was made for other layers or heads");
        if (!run.units.empty()) continue;
        run.units = units(run.forward, op.heads, run.threads);
        attention_.prepare(run.forward, run.kv, op.heads, run.threads);
    }
    if (features ? feature_rows != run.fed() || run.feature_width != features : run.features != nullptr)
        refuse("features must be " + (features ? "[" + std::to_string(run.fed()) + ", " + std::to_string(features) + "]" : std::string("absent: this program reads none")));
    if (widest / (BLOCK / 2) * run.fed() > size_t(std::numeric_limits<int>::max())) refuse("a forward of " + std::to_string(run.fed()) + " rows is too large for products over " + std::to_string(widest) + " columns: feed fewer at a time");
    for (size_t i = 0; i < buffers_.size(); i++) buffers_[i].fit(shapes_.slot(int(i)).stride * run.rows(shapes_.slot(int(i)).rows));
    packed_.fit(widest * sizeof(float) * run.fed());
    scales_.fit(widest / (BLOCK / 2) * run.fed());
    sums_.fit(widest / (BLOCK / 2) * run.fed());
    cos_.fit(inv_freq_.size() * run.fed());
    sin_.fit(inv_freq_.size() * run.fed());
    result.fed = run.fed();
    result.best.resize(result.rows);
    result.logits.reset(new float[std::max<size_t>(1, result.rows * result.width)]);
    result.hidden.reset(new float[std::max<size_t>(1, result.fed * result.taps)]);
}

Result Program::run(const KV& kv, const std::vector<int>& tokens, const std::vector<Item>& items, const float* features,
                    size_t feature_rows, size_t feature_width, int threads) {
    const Pool::Turn pool;
    std::lock_guard lock(turn_);  // in this order: who waits for the pool must not keep others from adding
    const Forward forward(items, tokens.size(), kv);
    Run run{kv, tokens, forward, features, feature_width, threads > 0 ? std::min(threads, pool->count()) : pool->count(), {}, {}, std::vector<std::atomic<int>>(ops_.size() + 1)};
    prepare(run, feature_rows);
    if (!run.fed()) return std::move(run.result);
    pool->run(run.threads, [&](int thread, int threads, Barrier& barrier) {
        const Share mine(int64_t(run.fed()), thread, threads);
        for (int64_t row = mine.first; row < mine.end; row++)
            for (size_t i = 0; i < inv_freq_.size(); i++) {
                const float angle = float(forward.rows[row].position) * inv_freq_[i];
                cos_.get()[row * inv_freq_.size() + i] = std::cos(angle) * rope_scale_[i];
                sin_.get()[row * inv_freq_.size() + i] = std::sin(angle) * rope_scale_[i];
            }
        for (size_t i = 0; i < ops_.size(); i++) {
            barrier.meet(threads);
            step(ops_[i], i, run, thread, threads, barrier);
        }
    });
    return std::move(run.result);
}

void Program::step(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier) {
    if (op.multiplies()) return linear(op, index, run, thread, threads, barrier);
    if (op.kind == Op::ATTEND) return attend(op, index, run, thread, threads, barrier);
    const Slot none, &source = op.reads() ? shapes_.slot(op.in) : none, &target = op.writes() ? shapes_.slot(op.out) : source;
    const Share mine(int64_t(run.rows(target.rows)), thread, threads);
    const size_t columns = source.columns;
    size_t before = 0;  // columns of earlier features or taps
    for (size_t i = 0; i < index; i++)
        if (ops_[i].kind == op.kind) before += shapes_.slot(op.kind == Op::TAP ? ops_[i].in : ops_[i].out).columns;
    for (int64_t row = mine.first; row < mine.end; row++) {
        const float* in = op.reads() && op.kind != Op::PICK ? buffers_[op.in].get() + row * source.stride : nullptr;
        float* out = op.writes() ? buffers_[op.out].get() + row * target.stride + op.offset : nullptr;
        switch (op.kind) {
            case Op::EMBED: {
                const Matrix& m = matrices_[op.matrix];
                if (op.norm >= 0 && run.tokens[row] == op.ids) {
                    std::copy_n(vectors_[op.norm].data(), m.cols, out);
                    break;
                }
                unpack_row(m.format, m.data, m.rows, m.cols, size_t(run.tokens[row]), out);
                if (op.scale != 1) std::transform(out, out + m.cols, out, [&](float x) { return x * op.scale; });
                break;
            }
            case Op::FEATURE: std::copy_n(run.features + row * run.feature_width + before, target.columns, out); break;
            case Op::NORM: {
                float* to = op.adds() ? buffers_[op.in].get() + row * source.stride : out;
                kernels_->norm(in, vectors_[op.norm].data(), int(columns), op.eps, to);
                if (op.adds()) std::transform(to, to + columns, out, out, [](float x, float y) { return y + x; });
                break;
            }
            case Op::COPY: std::copy_n(in, columns, out); break;
            case Op::TAP: std::copy_n(in, columns, run.result.hidden.get() + row * run.result.taps + before); break;
            case Op::PICK: std::copy_n(buffers_[op.in].get() + run.forward.wanted[row] * source.stride, columns, out); break;
            default: break;
        }
    }
}

void Program::linear(const Op& op, size_t index, Run& run, int thread, int threads, Barrier& barrier) {
    const Matrix& m = matrices_[op.matrix];
    const Slot& in = shapes_.slot(op.in);
    const int rows = int(run.rows(in.rows));
    if (!rows) return;
    const int k = int(padded(m.cols, K_STEP));
    const Act act = kernels_->act[m.format];
    const Packed a{act, k, size_t(k) * act_bytes(act), packed_.get(), scales_.get(), sums_.get(), act_group(act) ? k / act_group(act) : 0};
    const Strips sure(int(strips(m.rows)), thread, threads);
    const uint8_t* begin = m.data + size_t(sure.first) * strip_bytes(m.format, m.cols);
    for (int line = 0; line < 32; line++) __builtin_prefetch(begin + 64 * line);  // it comes while the rows are packed
    const Share mine(rows, thread, threads);
    for (int64_t row = mine.first; row < mine.end; row++)
        kernels_->pack(buffers_[op.in].get() + row * in.stride, op.norm >= 0 ? vectors_[op.norm].data() : nullptr, int(in.columns), op.eps, a, int(row));
    barrier.meet(threads);

    const bool last = op.kind == Op::LOGITS;
    const Product product{m.data, strip_bytes(m.format, m.cols), a, rows,
                          last ? run.result.logits.get() : buffers_[op.out].get() + op.offset,
                          last ? run.result.width : shapes_.slot(op.out).stride,
                          op.bias >= 0 ? vectors_[op.bias].data() : nullptr, op.then};
    kernels_->product[m.format](product, sure.first, sure.end);
    for (int first; (first = sure.all + run.next[index].fetch_add(sure.piece, std::memory_order_relaxed)) < sure.count;)
        kernels_->product[m.format](product, first, std::min(sure.count, first + sure.piece));
    if (!last) return;
    barrier.meet(threads);
    for (int64_t row = mine.first; row < mine.end; row++)
        run.result.best[row] = int(argmax(run.result.logits.get() + row * run.result.width, run.result.ids));
}

// Normalises and rotates one key head and its queries, and keeps the key and value.
void Program::turn(const Op& op, Run& run, int row, int kv_head, float* qkv) const {
    const Heads& h = op.heads;
    const int dim = h.head_dim, half = dim / 2;
    const size_t turn = size_t(row) * inv_freq_.size() + size_t(h.rope) * half;
    const float *cos = cos_.get() + turn, *sin = sin_.get() + turn;
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
    const size_t stride = shapes_.slot(op.in).stride;
    const Share mine(int64_t(run.fed()) * h.kv_heads, thread, threads);
    for (int64_t i = mine.first; i < mine.end; i++) turn(op, run, int(i / h.kv_heads), int(i % h.kv_heads), qkv + i / h.kv_heads * stride);
    barrier.meet(threads);
    const int count = int(run.units.size());
    for (int i; (i = run.next[index].fetch_add(1, std::memory_order_relaxed)) < count;)
        attention_.run(run.units[i], run.forward, run.kv, *kernels_, h, op.layer, qkv, stride, buffers_[op.out].get(), shapes_.slot(op.out).stride, thread);
}

}  // namespace forerun
