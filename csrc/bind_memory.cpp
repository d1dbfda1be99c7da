#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "memory.h"

namespace nb = nanobind;

namespace forerun {
namespace {

void read(Arena& arena, const std::string& path, uint64_t offset) {
    try {
        nb::gil_scoped_release unlocked;
        arena.read(path, offset);
    } catch (const FileError& error) {
        PyErr_SetString(PyExc_OSError, error.what());
        throw nb::python_error();
    }
}

// The array's owner is the Python object of the arena, which so outlives every view.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> view(nb::handle_t<Arena> self) {
    Arena& arena = nb::cast<Arena&>(self);
    return {arena.data(), {arena.size()}, self};
}

}  // namespace

void bind_memory(nb::module_& m) {
    nb::class_<Arena>(m, "Arena")
        .def(nb::init<size_t>(), nb::arg("nbytes"))
        .def_prop_ro("nbytes", &Arena::size)
        .def("read", read, nb::arg("path"), nb::arg("offset"))
        .def("view", view);
}

}  // namespace forerun
