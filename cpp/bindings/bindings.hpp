// What the binding files share: one registration function a subject, and how a refusal reaches Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "steppe/batch.hpp"

namespace steppe::bindings {

void bind_batch(pybind11::module_& m);
void bind_features(pybind11::module_& m);
void bind_feature_probe(pybind11::module_& m);
void bind_draft(pybind11::module_& m);
void bind_plan(pybind11::module_& m);
void bind_kernel(pybind11::module_& m);
void bind_transfer(pybind11::module_& m);
void bind_bulk(pybind11::module_& m);
void bind_running(pybind11::module_& m);
void bind_serialize(pybind11::module_& m);
void bind_caches(pybind11::module_& m);

// Raises steppe.Error with `message`.
[[noreturn]] void raise(const std::string& message);
// Raises steppe.Error where `status` is not ok.
void check(Status status);

}  // namespace steppe::bindings
