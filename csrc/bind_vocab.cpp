#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "mode.h"
#include "vocab.h"

namespace nb = nanobind;

namespace forerun {
namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsOut = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;
using WeightsOut = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

constexpr size_t BIG = 4096;  // tokens from which on the lock is worth giving up

template <class T>
nb::capsule owner_of(std::unique_ptr<T[]>& values) {
    return nb::capsule(values.release(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
}

std::vector<int64_t> argmax_of(Matrix logits) {
    const FloatMode mode;
    const size_t rows = logits.shape(0), size = logits.shape(1);
    if (rows > 0 && size > 1 && logits.stride(1) != 1)
        throw std::invalid_argument("a row's logits must lie one after another: copy the matrix first");
    std::vector<int64_t> best(rows);
    nb::gil_scoped_release unlocked;
    for (size_t r = 0; r < rows; r++) best[r] = argmax(logits.data() + int64_t(r) * logits.stride(0), size);
    return best;
}

std::pair<std::optional<IdsOut>, WeightsOut> nucleus_of(Weights row, double temperature, int64_t top_k, double top_p,
                                                        double min_p) {
    const FloatMode mode;
    Support support;
    {
        nb::gil_scoped_release unlocked;
        support = nucleus(row.data(), row.size(), {temperature, top_k, top_p, min_p});
    }
    std::optional<IdsOut> ids;
    if (support.ids) {
        int64_t* data = support.ids.get();
        ids.emplace(data, std::initializer_list<size_t>{support.size}, owner_of(support.ids));
    }
    float* data = support.weights.get();
    return {std::move(ids), WeightsOut(data, {support.size}, owner_of(support.weights))};
}

std::vector<std::pair<std::vector<int64_t>, std::vector<double>>> likeliest_of(Matrix logits, size_t k) {
    const FloatMode mode;
    const size_t rows = logits.shape(0), size = logits.shape(1);
    if (rows > 0 && size > 1 && logits.stride(1) != 1)
        throw std::invalid_argument("a row's logits must lie one after another: copy the matrix first");
    std::vector<std::pair<std::vector<int64_t>, std::vector<double>>> out;
    nb::gil_scoped_release unlocked;
    for (size_t r = 0; r < rows; r++) {
        Likeliest found = likeliest(logits.data() + int64_t(r) * logits.stride(0), size, k);
        out.emplace_back(std::move(found.ids), std::move(found.logs));
    }
    return out;
}

int64_t race_of(Weights weights, std::optional<Ids> ids, uint64_t key) {
    const FloatMode mode;
    const size_t size = weights.size();
    if (ids && ids->size() != size)
        throw std::invalid_argument("there are " + std::to_string(size) + " weights and " +
                                    std::to_string(ids->size()) + " ids: one of each for every token");
    const int64_t* tokens = ids ? ids->data() : nullptr;
    if (size < BIG) return race(weights.data(), tokens, size, key);
    nb::gil_scoped_release unlocked;
    return race(weights.data(), tokens, size, key);
}

}  // namespace

void bind_vocab(nb::module_& m) {
    m.def("argmax", argmax_of, nb::arg("logits").noconvert());
    m.def("nucleus", nucleus_of, nb::arg("row").noconvert(), nb::arg("temperature"), nb::arg("top_k"),
          nb::arg("top_p"), nb::arg("min_p"));
    m.def("likeliest", likeliest_of, nb::arg("logits").noconvert(), nb::arg("k"));
    m.def("race", race_of, nb::arg("weights").noconvert(), nb::arg("ids").noconvert().none(), nb::arg("key"));
}

}  // namespace forerun
