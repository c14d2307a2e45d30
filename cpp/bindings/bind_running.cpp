#include <memory>

#include "bindings.hpp"
#include "estimates.hpp"
#include "steppe/running.hpp"

namespace py = pybind11;

namespace steppe::bindings {
namespace {

// The batch and the kernel it reads, kept together.
struct OwnedRunning {
  py::object kernel;
  RunningBatch batch;
};

std::unique_ptr<OwnedRunning> make(const py::object& kernel, std::int32_t width, std::int32_t sm_budget,
                                   std::int32_t pad_tokens, std::int32_t group_tokens) {
  try {
    const RunningSettings settings{width, sm_budget, pad_tokens, group_tokens};
    return std::make_unique<OwnedRunning>(
        OwnedRunning{kernel, RunningBatch(kernel.cast<const Kernel&>(), settings)});
  } catch (const std::invalid_argument& e) {
    raise(e.what());
  }
}

void check_request(Status status, std::uint64_t id) {
  if (status != Status::ok) raise("request " + std::to_string(id) + ": " + describe(status));
}

void check_step(Status status, const RunTotal& total) {
  if (status != Status::ok) raise("step " + std::to_string(total.steps) + ": " + describe(status));
}

void check_steps(std::int64_t steps) {
  if (steps < 0) raise("steps must be 0 or more");
}

py::array price_run(OwnedRunning& self, std::int64_t steps, const py::object& out) {
  check_steps(steps);
  py::array result = estimates_out(out, static_cast<std::size_t>(steps));
  const std::span<Estimate> each = estimates_in(result);
  RunTotal total;
  Status status;
  {
    const py::gil_scoped_release unlocked;
    status = self.batch.price_run(steps, each, total);
  }
  check_step(status, total);
  return result;
}

py::tuple run_total(OwnedRunning& self, std::int64_t steps) {
  check_steps(steps);
  RunTotal total;
  Status status;
  {
    const py::gil_scoped_release unlocked;
    status = self.batch.price_run(steps, {}, total);
  }
  check_step(status, total);
  return py::make_tuple(total.no_overlap_ns, total.overlap_ns);
}

}  // namespace

void bind_running(py::module_& m) {
  py::class_<OwnedRunning>(m, "RunningBatch",
                           R"(A decode batch that lives from step to step, for one thread at a time.

Every request schedules `width` tokens a step (1 + speculative tokens). `sm_budget`, `pad_tokens` and `group_tokens` are
those of `Batch`. Pricing equals `step_time` of the same batch to the nanosecond, and costs neither layers nor requests.)")
      .def(py::init(&make), py::arg("kernel"), py::kw_only(), py::arg("width") = 1, py::arg("sm_budget") = 0,
           py::arg("pad_tokens") = 0, py::arg("group_tokens") = 0)
      .def(
          "add",
          [](OwnedRunning& self, std::uint64_t id, std::int32_t computed) {
            check_request(self.batch.add(id, computed), id);
          },
          py::arg("id"), py::arg("computed"),
          "A request joins with so many computed tokens. `steppe.Error` if it is there.")
      .def(
          "remove", [](OwnedRunning& self, std::uint64_t id) { check_request(self.batch.remove(id), id); },
          py::arg("id"), "A request leaves. `steppe.Error` if it is not there.")
      .def(
          "advance", [](OwnedRunning& self, std::int64_t tokens) { check(self.batch.advance(tokens)); },
          py::arg("tokens") = 1, "Every request has so many tokens more computed.")
      .def(
          "computed",
          [](const OwnedRunning& self, std::uint64_t id) {
            const std::int64_t tokens = self.batch.computed(id);
            if (tokens < 0) check_request(Status::unknown_request, id);
            return tokens;
          },
          py::arg("id"), "Tokens a request has computed.")
      .def(
          "price",
          [](OwnedRunning& self) {
            OwnedEstimate out;
            check(self.batch.price(out.e));
            out.kernel = self.kernel;
            out.batch = py::none();
            return out;
          },
          "The next step, as the batch stands.")
      .def("price_run", &price_run, py::arg("steps"), py::kw_only(), py::arg("out") = py::none(),
           "Runs so many steps, a token each, and returns an array of ESTIMATE_DTYPE, one entry a step.")
      .def("run_total", &run_total, py::arg("steps"),
           "Runs so many steps, a token each, and returns their summed (no_overlap, overlap) nanoseconds.")
      .def("__len__", [](const OwnedRunning& self) { return self.batch.size(); })
      .def("__contains__",
           [](const OwnedRunning& self, std::uint64_t id) { return self.batch.computed(id) >= 0; })
      .def("__repr__", [](const OwnedRunning& self) {
        return "<RunningBatch of " + std::to_string(self.batch.size()) + " requests>";
      });
}

}  // namespace steppe::bindings
