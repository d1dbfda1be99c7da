// One function a part that adds its names to the Python module; module.cpp calls them all.
#pragma once
#include <nanobind/nanobind.h>

namespace forerun {

void bind_cpu(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_pack(nanobind::module_& m);
void bind_vocab(nanobind::module_& m);
void bind_program(nanobind::module_& m);

}  // namespace forerun
