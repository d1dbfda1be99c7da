#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "bind.h"
#include "isa.h"
#include "mode.h"
#include "pack.h"

namespace nb = nanobind;

namespace nanobind::detail {
template <>
struct dtype_traits<forerun::Half> {
    static constexpr dlpack::dtype value{uint8_t(dlpack::dtype_code::Float), 16, 1};
    static constexpr auto name = const_name("float16");
};
}  // namespace nanobind::detail

namespace forerun {
namespace {

template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Packed = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void expect(const char* what, size_t got, size_t wanted) {
    if (got != wanted)
        throw std::invalid_argument(std::string(what) + " is " + std::to_string(got) + ", must be " +
                                    std::to_string(wanted));
}

template <class T>
void expect_aligned(const char* what, const T* data) {
    if (reinterpret_cast<uintptr_t>(data) % alignof(T))
        throw std::invalid_argument(std::string(what) + " does not begin at a multiple of its item size: copy it");
}

// The size of `out` is the only thing that keeps a pack from writing past its end.
void expect_out(Format format, size_t rows, size_t cols, size_t got) {
    expect("the size of the packed bytes", got, checked_matrix_bytes(format, rows, cols));
}

void expect_codes(bool good, const char* allowed) {
    if (!good) throw std::invalid_argument(std::string("a code is out of range (allowed: ") + allowed + ")");
}

void whole_blocks(size_t cols, size_t block) {
    if (cols % block)
        throw std::invalid_argument("rows have " + std::to_string(cols) + " values, this format needs a multiple of " +
                                    std::to_string(block) + ": pad with zeros");
}

template <class T>
void expect_shape(const char* what, const Matrix<T>& got, size_t rows, size_t cols) {
    expect((std::string("rows of ") + what).c_str(), got.shape(0), rows);
    expect((std::string("columns of ") + what).c_str(), got.shape(1), cols);
    expect_aligned(what, got.data());
}

template <class T, void (*PACK)(const T*, size_t, size_t, uint8_t*), Format FORMAT>
void plain(Matrix<T> matrix, Out out) {
    const size_t rows = matrix.shape(0), cols = matrix.shape(1);
    expect_out(FORMAT, rows, cols, out.size());
    expect_aligned("the matrix", matrix.data());
    nb::gil_scoped_release unlocked;
    PACK(matrix.data(), rows, cols, out.data());
}

void int8(Matrix<int8_t> codes, Vector<float> scales, Out out) {
    const size_t rows = codes.shape(0), cols = codes.shape(1);
    expect_out(INT8, rows, cols, out.size());
    expect("the number of scales", scales.size(), rows);
    expect_aligned("scales", scales.data());
    nb::gil_scoped_release unlocked;
    expect_codes(pack_int8(codes.data(), scales.data(), rows, cols, out.data()), "-127 to 127");
}

void blocks(const std::string& name, Matrix<int8_t> codes, Matrix<Half> d, std::optional<Matrix<Half>> m, Out out) {
    const Format format = format_of(name);
    if (format != Q8_0 && format != Q4_0 && format != Q4_1)
        throw std::invalid_argument("'" + name + "' has no blocks (allowed: q8_0, q4_0, q4_1)");
    if (m.has_value() != (format == Q4_1))
        throw std::invalid_argument(std::string("m is ") + (m ? "given" : "missing") + ": q4_1, and it alone, has one");
    const size_t rows = codes.shape(0), cols = codes.shape(1);
    expect_out(format, rows, cols, out.size());
    whole_blocks(cols, BLOCK);
    expect_shape("d", d, rows, cols / BLOCK);
    if (m) expect_shape("m", *m, rows, cols / BLOCK);
    nb::gil_scoped_release unlocked;
    const bool good = pack_blocks(format, codes.data(), d.data(), m ? m->data() : nullptr, rows, cols, out.data());
    expect_codes(good, "0 to 15");
}

void nf4(Matrix<uint8_t> codes, Matrix<float> absmax, Out out) {
    const size_t rows = codes.shape(0), cols = codes.shape(1);
    expect_out(NF4, rows, cols, out.size());
    whole_blocks(cols, NF4_BLOCK);
    expect_shape("absmax", absmax, rows, cols / NF4_BLOCK);
    nb::gil_scoped_release unlocked;
    expect_codes(pack_nf4(codes.data(), absmax.data(), rows, cols, out.data()), "0 to 15");
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> unpacked(const std::string& name, size_t rows, size_t cols, Packed packed) {
    const FloatMode mode;
    const Format format = format_of(name);
    expect_out(format, rows, cols, packed.size());
    auto* values = new float[rows * cols];
    nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    {
        nb::gil_scoped_release unlocked;
        unpack(format, packed.data(), rows, cols, values);
    }
    return {values, {rows, cols}, owner};
}

}  // namespace

void bind_pack(nb::module_& m) {
    nb::list names;
    for (const char* name : FORMAT_NAMES) names.append(name);
    m.attr("FORMATS") = nb::tuple(names);
    m.def("packed_bytes", [](const std::string& name, size_t rows, size_t cols) {
        return checked_matrix_bytes(format_of(name), rows, cols);
    }, nb::arg("format"), nb::arg("rows"), nb::arg("cols"));
    m.def("pack_f32", plain<float, pack_f32, F32>, nb::arg("matrix").noconvert(), nb::arg("out").noconvert());
    m.def("pack_bf16", plain<uint16_t, pack_bf16, BF16>, nb::arg("matrix").noconvert(), nb::arg("out").noconvert());
    m.def("pack_int8", int8, nb::arg("codes").noconvert(), nb::arg("scales").noconvert(), nb::arg("out").noconvert());
    m.def("pack_blocks", blocks, nb::arg("format"), nb::arg("codes").noconvert(), nb::arg("d").noconvert(),
          nb::arg("m").noconvert().none(), nb::arg("out").noconvert());
    m.def("pack_nf4", nf4, nb::arg("codes").noconvert(), nb::arg("absmax").noconvert(), nb::arg("out").noconvert());
    m.def("unpack", unpacked, nb::arg("format"), nb::arg("rows"), nb::arg("cols"), nb::arg("packed").noconvert());
}

}  // namespace forerun
