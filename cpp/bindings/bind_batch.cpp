#include <limits>

#include "batch.hpp"

namespace py = pybind11;

namespace steppe::bindings {

std::vector<std::int32_t> tokens_of(const py::object& values, const char* what) {
  const py::array array = py::array::ensure(values);
  if (!array) {
    PyErr_Clear();
    raise(std::string(what) + " must be a one-dimensional sequence of integers");
  }
  if (array.ndim() != 1) raise(std::string(what) + " must be one-dimensional, one entry a request");
  const char kind = array.dtype().kind();
  if (array.size() == 0) return {};
  if (kind != 'i' && kind != 'u')
    raise(std::string(what) + " must hold integers (token counts), not " +
          std::string(py::str(array.dtype())));
  const auto wide = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  const auto view = wide.unchecked<1>();
  std::vector<std::int32_t> out(static_cast<std::size_t>(view.shape(0)));
  for (py::ssize_t i = 0; i < view.shape(0); ++i) {
    const std::int64_t value = view(i);
    if (value < 0)
      raise(std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(value) +
            ": a token count cannot be negative");
    if (value > std::numeric_limits<std::int32_t>::max() / 2)
      raise(std::string(what) + "[" + std::to_string(i) + "] is more than 2^30 tokens");
    out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(value);
  }
  return out;
}

std::int32_t setting_of(const py::object& value, const char* what) {
  const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) {
    PyErr_Clear();
    raise(std::string(what) + " must be an integer");
  }
  const long long number = PyLong_AsLongLong(index.ptr());
  if (PyErr_Occurred() || number < 0 || number > std::numeric_limits<std::int32_t>::max()) {
    PyErr_Clear();
    raise(std::string(what) + " must be between 0 and 2^31 - 1");
  }
  return static_cast<std::int32_t>(number);
}

void bind_batch(py::module_& m) {
  py::class_<OwnedBatch>(m, "Batch", R"(One forward pass as the scheduler sees it.

`scheduled[i]` tokens of request i run this step, after the `computed[i]` it had before. A request is a prefill when it
schedules more than `decode_threshold` tokens (0 makes every request a prefill). `sm_budget` is the number of SMs left
to the step (0 = all). `pad_tokens` are the rows the data-parallel lockstep adds on this rank; `group_tokens` the rows
of all data-parallel ranks together, which meet at the experts (0 = every rank runs as many as this one).

The arrays are copied. Raises `steppe.Error` for negative or non-integer counts and for lengths that differ.)")
      .def(py::init([](const py::object& scheduled, const py::object& computed,
                       const py::object& decode_threshold, const py::object& sm_budget,
                       const py::object& pad_tokens, const py::object& group_tokens) {
             OwnedBatch batch{tokens_of(scheduled, "scheduled"),
                              tokens_of(computed, "computed"),
                              setting_of(decode_threshold, "decode_threshold"),
                              setting_of(sm_budget, "sm_budget"),
                              setting_of(pad_tokens, "pad_tokens"),
                              setting_of(group_tokens, "group_tokens")};
             if (batch.scheduled.size() != batch.computed.size()) {
               raise("scheduled has " + std::to_string(batch.scheduled.size()) + " entries and computed " +
                     std::to_string(batch.computed.size()) + ": one entry a request in both");
             }
             return batch;
           }),
           py::arg("scheduled"), py::arg("computed"), py::kw_only(), py::arg("decode_threshold") = 1,
           py::arg("sm_budget") = 0, py::arg("pad_tokens") = 0, py::arg("group_tokens") = 0)
      .def_property_readonly("scheduled",
                             [](const OwnedBatch& b) {
                               return py::array_t<std::int32_t>(static_cast<py::ssize_t>(b.scheduled.size()),
                                                                b.scheduled.data());
                             })
      .def_property_readonly("computed",
                             [](const OwnedBatch& b) {
                               return py::array_t<std::int32_t>(static_cast<py::ssize_t>(b.computed.size()),
                                                                b.computed.data());
                             })
      .def_readonly("decode_threshold", &OwnedBatch::decode_threshold)
      .def_readonly("sm_budget", &OwnedBatch::sm_budget)
      .def_readonly("pad_tokens", &OwnedBatch::pad_tokens)
      .def_readonly("group_tokens", &OwnedBatch::group_tokens)
      .def("__len__", [](const OwnedBatch& b) { return b.scheduled.size(); })
      .def("__repr__", [](const OwnedBatch& b) {
        std::int64_t tokens = 0;
        for (const std::int32_t s : b.scheduled) tokens += s;
        return "<Batch of " + std::to_string(b.scheduled.size()) + " requests, " + std::to_string(tokens) +
               " tokens>";
      });
}

}  // namespace steppe::bindings
