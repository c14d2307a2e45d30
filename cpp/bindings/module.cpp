#include "bindings.hpp"

namespace steppe::bindings {

void raise(const std::string& message) {
  pybind11::set_error(pybind11::module_::import("steppe.errors").attr("Error"), message.c_str());
  throw pybind11::error_already_set();
}

void check(Status status) {
  if (status != Status::ok) raise(describe(status));
}

}  // namespace steppe::bindings

PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  m.doc() = "The pricing core. Use it through the `steppe` package.";
  m.attr("__version__") = STEPPE_VERSION;
  steppe::bindings::bind_batch(m);
  steppe::bindings::bind_plan(m);
  steppe::bindings::bind_kernel(m);
  steppe::bindings::bind_transfer(m);
  steppe::bindings::bind_bulk(m);
  steppe::bindings::bind_running(m);
  steppe::bindings::bind_serialize(m);
  steppe::bindings::bind_caches(m);
}
