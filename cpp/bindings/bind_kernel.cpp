#include <memory>

#include "batch.hpp"
#include "estimates.hpp"
#include "steppe/kernel.hpp"

namespace py = pybind11;

namespace steppe::bindings {
namespace {

py::dict per_resource(const Estimate& e) {
  py::dict out;
  for (std::size_t r = 0; r < kResources; ++r) out[kResourceNames[r]] = e.resource_ns[r];
  return out;
}

// Raises where a batch could not be priced, naming the request that is too long.
void check_of(Status status, const OwnedBatch& batch, std::int64_t max_model_len) {
  if (status != Status::beyond_max_len) return check(status);
  for (std::size_t i = 0; i < batch.scheduled.size(); ++i) {
    const std::int64_t computed = batch.computed[i], scheduled = batch.scheduled[i];
    if (computed + scheduled <= max_model_len) continue;
    raise("request " + std::to_string(i) + ": " + std::to_string(computed) + " computed and " +
          std::to_string(scheduled) + " scheduled tokens exceed the deployment's max_model_len of " +
          std::to_string(max_model_len));
  }
  check(status);
}

py::list explain(const Kernel& kernel, const OwnedBatch& batch) {
  std::vector<TermCost> costs;
  check(kernel.explain(batch.view(), costs));
  py::list rows;
  for (const TermCost& cost : costs) {
    const Stage& stage = kernel.plan().stages[cost.term->stage];
    rows.append(py::make_tuple(stage.name, cost.term->name,
                               kResourceNames[static_cast<std::size_t>(cost.term->resource)],
                               cost.own_s * 1e9, cost.hbm_s * 1e9, stage.layers, cost.term->count));
  }
  return rows;
}

}  // namespace

void bind_kernel(py::module_& m) {
  py::class_<OwnedEstimate>(m, "StepEstimate", R"(What one step costs on one rank, integer nanoseconds.

`no_overlap` is the sum of the five resources; `overlap` lets the resources of a layer run side by side, never two
layers. `bottleneck` is the resource with the largest total. `draft` is the draft passes' share of `no_overlap`.)")
      .def_property_readonly("no_overlap", [](const OwnedEstimate& s) { return s.e.no_overlap_ns; })
      .def_property_readonly("overlap", [](const OwnedEstimate& s) { return s.e.overlap_ns; })
      .def_property_readonly("draft", [](const OwnedEstimate& s) { return s.e.draft_ns; })
      .def_property_readonly("tokens", [](const OwnedEstimate& s) { return s.e.tokens; })
      .def_property_readonly("bottleneck",
                             [](const OwnedEstimate& s) { return kResourceNames[s.e.bottleneck]; })
      .def_property_readonly("per_resource", [](const OwnedEstimate& s) { return per_resource(s.e); })
      .def_property_readonly(
          "rows",
          [](const OwnedEstimate& s) {
            if (s.batch.is_none())
              raise("a running batch keeps no breakdown: price its requests as a Batch to explain a step");
            return explain(s.kernel.cast<const Kernel&>(), s.batch.cast<const OwnedBatch&>());
          },
          "The breakdown as (stage, term, resource, ns on it, ns bound by memory, layers, launches a layer).")
      .def_property_readonly(
          "terms",
          [](const py::object& self) {
            return py::module_::import("steppe.breakdown").attr("terms_of")(self);
          },
          "The breakdown as `steppe.breakdown.TermCost` lines, integer ns that sum to `per_resource`.")
      .def("_repr_html_",
           [](const py::object& self) { return py::module_::import("steppe.breakdown").attr("html")(self); })
      .def("__repr__", [](const OwnedEstimate& s) {
        return "<StepEstimate " + std::to_string(s.e.no_overlap_ns) + " ns, bottleneck " +
               kResourceNames[s.e.bottleneck] + ">";
      });

  py::class_<Kernel, std::shared_ptr<Kernel>>(m, "Kernel")
      .def(py::init([](const Plan& plan) {
             try {
               return std::make_shared<Kernel>(plan);
             } catch (const std::invalid_argument& e) {
               raise(e.what());
             }
           }),
           py::arg("plan"))
      .def(
          "step_time",
          [](const py::object& self, const py::object& batch) {
            if (!py::isinstance<OwnedBatch>(batch)) {
              throw py::type_error("step_time takes a steppe.Batch, not " +
                                   std::string(py::str(py::type::of(batch).attr("__name__"))));
            }
            OwnedEstimate out;
            const auto& kernel = self.cast<const Kernel&>();
            const auto& rows = batch.cast<const OwnedBatch&>();
            check_of(kernel.step_time(rows.view(), out.e), rows, kernel.plan().features.max_model_len);
            out.kernel = self;
            out.batch = batch;
            return out;
          },
          py::arg("batch"))
      .def_property_readonly("plan", &Kernel::plan, py::return_value_policy::reference_internal);
}

}  // namespace steppe::bindings
