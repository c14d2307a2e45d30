// Estimates as Python sees them: one object with its breakdown, or a structured array.
#pragma once

#include "bindings.hpp"
#include "steppe/estimate.hpp"

namespace steppe::bindings {

// An estimate keeps the kernel and batch it came from, so that its breakdown can be made when it is asked
// for. A running batch leaves `batch` out.
struct OwnedEstimate {
  Estimate e;
  pybind11::object kernel, batch;
};

// The layout of `Estimate` as a numpy dtype.
pybind11::dtype estimate_dtype();
// `out` as an array of `size` estimates, or a new one where it is None; raises steppe.Error for another dtype
// or shape.
pybind11::array estimates_out(const pybind11::object& out, std::size_t size);
std::span<Estimate> estimates_in(pybind11::array& array);

}  // namespace steppe::bindings
