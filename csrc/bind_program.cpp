#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "bind.h"
#include "kv.h"
#include "memory.h"
#include "pool.h"
#include "probe.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {
namespace {

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using ItemTuple = std::tuple<int64_t, int64_t, int64_t, std::vector<int>, std::vector<int64_t>>;

// [rows, columns] of an array whose rows lie `stride` apart; the array owns the memory.
Rows rows_of(std::unique_ptr<float[]> memory, size_t rows, size_t columns, size_t stride) {
    float* data = memory.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    const size_t shape[] = {rows, columns};
    const int64_t strides[] = {int64_t(stride), 1};
    return Rows(data, 2, shape, owner, strides);
}

// Python hears once of threads that could not be made.
void say_note() {
    const std::string note = Pool::take_note();
    if (!note.empty() && PyErr_WarnEx(PyExc_RuntimeWarning, note.c_str(), 1)) throw nb::python_error();
}

nb::tuple run(Program& program, const KV& kv, const std::vector<int>& tokens, const std::vector<ItemTuple>& tuples,
              const std::optional<FloatRows>& features, int threads) {
    if (threads < 0) throw std::invalid_argument("threads must be 0 (all) or more");
    std::vector<Item> items;
    items.reserve(tuples.size());
    for (const auto& [start, certain, seen, parents, blocks] : tuples) items.push_back({start, certain, seen, parents, blocks});
    Result result;
    {
        nb::gil_scoped_release release;
        result = program.run(kv, tokens, items, features ? features->data() : nullptr, features ? features->shape(0) : 0,
                             features ? features->shape(1) : 0, threads);
    }
    say_note();
    nb::object hidden = nb::none();
    if (result.taps) hidden = nb::cast(rows_of(std::move(result.hidden), result.fed, result.taps, result.taps));
    return nb::make_tuple(rows_of(std::move(result.logits), result.rows, result.columns, result.width), result.best, hidden);
}

// What may not happen while a forward of another thread reads the memory.
template <class Act> void between_forwards(Act&& act) {
    nb::gil_scoped_release release;
    std::lock_guard lock(Pool::between_forwards());
    act();
}

Then then_of(const std::string& name) {
    if (name == "store") return STORE;
    if (name == "add") return ADD;
    if (name == "silu") return SILU;
    if (name == "add_silu") return ADD_SILU;
    if (name == "gelu_tanh") return GELU;
    throw std::invalid_argument("an operation is followed by '" + name + "' (allowed: store, add, silu, add_silu, gelu_tanh)");
}

Op op(Op::Kind kind, int in, int out) {
    Op made;
    made.kind = kind, made.in = in, made.out = out;
    return made;
}

void linear(Program& program, int source, int out, int matrix, int bias, int norm, float eps, const std::string& then, int offset) {
    Op made = op(Op::LINEAR, source, out);
    made.matrix = matrix, made.bias = bias, made.norm = norm, made.eps = eps, made.then = then_of(then), made.offset = offset;
    program.add(made);
}

void attend(Program& program, int qkv, int out, int layer, int heads, int kv_heads, int head_dim, int window, int q_norm,
            int k_norm, float eps, int rope, float scale) {
    Op made = op(Op::ATTEND, qkv, out);
    made.layer = layer, made.heads = {heads, kv_heads, head_dim, window, rope, scale}, made.norm = q_norm, made.k_norm = k_norm, made.eps = eps;
    program.add(made);
}

void logits(Program& program, int source, int matrix, int bias, int norm, float eps, int ids) {
    Op made = op(Op::LOGITS, source, -1);
    made.matrix = matrix, made.bias = bias, made.norm = norm, made.eps = eps;
    made.ids = ids;
    program.add(made);
}

void bind_operations(nb::class_<Program>& c) {
    c.def("embed", [](Program& p, int matrix, int out, int stand_in, int id, float scale) {
        Op made = op(Op::EMBED, -1, out);
        made.matrix = matrix, made.norm = stand_in, made.ids = id, made.scale = scale;
        p.add(made);
    }, "matrix"_a, "out"_a, nb::kw_only(), "stand_in"_a = -1, "id"_a = -1, "scale"_a = 1.0f);
    c.def("feature", [](Program& p, int out) { p.add(op(Op::FEATURE, -1, out)); }, "out"_a);
    c.def("norm", [](Program& p, int source, int out, int weight, float eps, int offset, const std::string& then) {
        Op made = op(Op::NORM, source, out);
        made.norm = weight, made.eps = eps, made.offset = offset, made.then = then_of(then);
        if (made.then != STORE && made.then != ADD) throw std::invalid_argument("a norm is followed by '" + then + "' (allowed: store, add)");
        p.add(made);
    }, "source"_a, "out"_a, "weight"_a, "eps"_a, "offset"_a = 0, "then"_a = "store");
    c.def("copy", [](Program& p, int source, int out, int offset) {
        Op made = op(Op::COPY, source, out);
        made.offset = offset;
        p.add(made);
    }, "source"_a, "out"_a, "offset"_a = 0);
    c.def("linear", &linear, "source"_a, "out"_a, "matrix"_a, nb::kw_only(), "bias"_a = -1, "norm"_a = -1, "eps"_a = 0.0f,
          "then"_a = "store", "offset"_a = 0);
    c.def("attend", &attend, "qkv"_a, "out"_a, "layer"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, nb::kw_only(), "window"_a = 0,
          "q_norm"_a = -1, "k_norm"_a = -1, "eps"_a = 0.0f, "rope"_a = 0, "scale"_a = 0.0f);
    c.def("tap", [](Program& p, int source) { p.add(op(Op::TAP, source, -1)); }, "source"_a);
    c.def("pick", [](Program& p, int source, int out) { p.add(op(Op::PICK, source, out)); }, "source"_a, "out"_a);
    c.def("logits", &logits, "source"_a, "matrix"_a, nb::kw_only(), "bias"_a = -1, "norm"_a = -1, "eps"_a = 0.0f, "ids"_a = 0);
}

}  // namespace

void bind_program(nb::module_& m) {
    m.def("set_threads", [](int count) {
        if (count < 0 || count > 1024) throw std::invalid_argument("threads must be 0 (as many as cores) to 1024, got " + std::to_string(count));
        nb::gil_scoped_release release;
        Pool::set_threads(count);
    }, "count"_a);
    m.def("threads", &Pool::threads);
    m.def("fail", [](int thread) {
        nb::gil_scoped_release release;
        const Pool::Turn pool;
        pool->run(pool->count(), [&](int each, int threads, Barrier& barrier) {
            barrier.meet(threads);
            if (each == thread % threads) throw std::bad_alloc();
            barrier.meet(threads);
        });
    }, "thread"_a);
    m.def("probe", [](size_t nbytes, double seconds) {
        nb::gil_scoped_release release;
        return probe(nbytes, seconds);
    }, "nbytes"_a, "seconds"_a);

    nb::class_<KV>(m, "KV")
        .def(nb::init<int, int, int, int64_t, const std::string&>(), "layers"_a, "kv_heads"_a, "head_dim"_a, "blocks"_a, "dtype"_a)
        .def_prop_ro("nbytes", &KV::nbytes)
        .def("move", [](const KV& kv, const std::vector<int64_t>& sources, const std::vector<int64_t>& targets) {
            between_forwards([&] { kv.move(sources, targets); });
        }, "sources"_a, "targets"_a)
        .def("copy_block", [](const KV& kv, int64_t source, int64_t target) {
            between_forwards([&] { kv.copy_block(source, target); });
        }, "source"_a, "target"_a);

    nb::class_<Program> c(m, "Program");
    c.def(nb::init<const std::string&>(), "isa"_a);
    c.def("matrix", &Program::matrix, "format"_a, "rows"_a, "cols"_a, "arena"_a, "offset"_a);
    c.def("vector", [](Program& p, const Floats& values) { return p.vector(values.data(), values.shape(0)); }, "values"_a);
    c.def("buffer", &Program::buffer, "width"_a);
    c.def("rope", [](Program& p, const Floats& inv_freq, float scale) { return p.rope(inv_freq.data(), inv_freq.shape(0), scale); },
          "inv_freq"_a, "scale"_a);
    bind_operations(c);
    c.def("run", &run, "kv"_a, "tokens"_a, "items"_a, "features"_a = nb::none(), "threads"_a = 0);
    c.def_ro("isa", &Program::isa);
    c.def_prop_ro("weight_bytes", &Program::weight_bytes);
}

}  // namespace forerun
