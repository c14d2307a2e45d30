#include <algorithm>
#include <cstring>
#include <limits>

#include "batch.hpp"
#include "estimates.hpp"
#include "steppe/bulk.hpp"

namespace py = pybind11;

namespace steppe::bindings {

py::dtype estimate_dtype() {
  py::list names, formats, offsets;
  const auto field = [&](const char* name, const char* format, std::size_t offset) {
    names.append(name);
    formats.append(format);
    offsets.append(offset);
  };
  field("no_overlap", "i8", offsetof(Estimate, no_overlap_ns));
  field("overlap", "i8", offsetof(Estimate, overlap_ns));
  for (std::size_t r = 0; r < kResources; ++r)
    field(kResourceNames[r], "i8", offsetof(Estimate, resource_ns) + 8 * r);
  field("draft", "i8", offsetof(Estimate, draft_ns));
  field("tokens", "i8", offsetof(Estimate, tokens));
  field("bottleneck", "u1", offsetof(Estimate, bottleneck));
  return py::dtype(names, formats, offsets, sizeof(Estimate));
}

py::array estimates_out(const py::object& out, std::size_t size) {
  const py::dtype dtype = estimate_dtype();
  if (out.is_none()) {
    py::array array(dtype, static_cast<py::ssize_t>(size));
    std::memset(array.mutable_data(), 0, size * sizeof(Estimate));  // the bytes between fields, too
    return array;
  }
  if (!py::isinstance<py::array>(out)) raise("out must be a numpy array of steppe.ESTIMATE_DTYPE");
  py::array array = py::reinterpret_borrow<py::array>(out);
  const bool contiguous = (array.flags() & py::array::c_style) != 0;
  if (!array.dtype().equal(dtype) || array.ndim() != 1 || !contiguous || !array.writeable()) {
    raise("out must be a writeable, contiguous, one-dimensional array of steppe.ESTIMATE_DTYPE");
  }
  if (static_cast<std::size_t>(array.size()) != size) {
    raise("out has " + std::to_string(array.size()) + " entries for " + std::to_string(size) + " estimates");
  }
  return array;
}

std::span<Estimate> estimates_in(py::array& array) {
  return {static_cast<Estimate*>(array.mutable_data()), static_cast<std::size_t>(array.size())};
}

namespace {

// A one-dimensional array of integers in the width the core reads: borrowed where it has it, else converted
// and checked.
template <class T>
py::array_t<T, py::array::c_style> integers(const py::object& values, const char* what) {
  const py::array array = py::array::ensure(values);
  if (!array) {
    PyErr_Clear();
    raise(std::string(what) + " must be a one-dimensional array of integers");
  }
  if (array.ndim() != 1) raise(std::string(what) + " must be one-dimensional");
  const char kind = array.dtype().kind();
  if (array.size() > 0 && kind != 'i' && kind != 'u')
    raise(std::string(what) + " must hold integers, not " + std::string(py::str(array.dtype())));
  if (py::isinstance<py::array_t<T, py::array::c_style>>(array))
    return py::array_t<T, py::array::c_style>(array);
  // A count that does not fit becomes one the pricing refuses, which names the batch.
  const auto wide = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  py::array_t<T, py::array::c_style> narrow(wide.size());
  std::transform(wide.data(), wide.data() + wide.size(), narrow.mutable_data(), [](std::int64_t value) {
    return static_cast<T>(std::clamp<std::int64_t>(value, -1, std::numeric_limits<T>::max()));
  });
  return narrow;
}

// A setting given as one number or one a batch.
class Settings {
 public:
  Settings(const py::object& value, const char* what) {
    if (py::isinstance<py::array>(value) || py::isinstance<py::sequence>(value)) {
      each_ = integers<std::int32_t>(value, what);
      if (each_.size() == 0) setting_.all = 0;
    } else {
      setting_.all = setting_of(value, what);
    }
  }
  Setting view() const {
    return each_.size() > 0 ? Setting{{each_.data(), static_cast<std::size_t>(each_.size())}, 0} : setting_;
  }

 private:
  py::array_t<std::int32_t, py::array::c_style> each_;
  Setting setting_;
};

py::array step_times_of(const Kernel& kernel, const py::object& offsets, const py::object& scheduled,
                        const py::object& computed, const py::object& decode_threshold,
                        const py::object& sm_budget, const py::object& pad_tokens,
                        const py::object& group_tokens, const py::object& out, unsigned threads) {
  const auto places = integers<std::int64_t>(offsets, "offsets");
  const auto now = integers<std::int32_t>(scheduled, "scheduled"),
             past = integers<std::int32_t>(computed, "computed");
  const auto view = [](const auto& a) { return std::span(a.data(), static_cast<std::size_t>(a.size())); };
  const Settings threshold(decode_threshold, "decode_threshold"), budget(sm_budget, "sm_budget"),
      pad(pad_tokens, "pad_tokens"), group(group_tokens, "group_tokens");
  const Batches batches{view(places),  view(now),  view(past),  threshold.view(),
                        budget.view(), pad.view(), group.view()};
  if (const char* why = batches.objection()) raise(why);
  if (threads < 1) raise("threads must be at least 1");
  py::array result = estimates_out(out, batches.size());
  const std::span<Estimate> estimates = estimates_in(result);
  BulkStatus status;
  {
    const py::gil_scoped_release unlocked;
    status = step_times(kernel, batches, estimates, threads);
  }
  if (status.status != Status::ok)
    raise("batch " + std::to_string(status.batch) + ": " + describe(status.status));
  return result;
}

}  // namespace

void bind_bulk(py::module_& m) {
  m.attr("ESTIMATE_DTYPE") = estimate_dtype();
  py::tuple resources(kResources);
  for (std::size_t r = 0; r < kResources; ++r) resources[r] = kResourceNames[r];
  m.attr("RESOURCES") = resources;
  m.def("step_times", &step_times_of, py::arg("kernel"), py::arg("offsets"), py::arg("scheduled"),
        py::arg("computed"), py::kw_only(), py::arg("decode_threshold") = 1, py::arg("sm_budget") = 0,
        py::arg("pad_tokens") = 0, py::arg("group_tokens") = 0, py::arg("out") = py::none(),
        py::arg("threads") = 1);
}

}  // namespace steppe::bindings
