#include "batch.hpp"
#include "feature_names.hpp"
#include "steppe/draft.hpp"

namespace py = pybind11;

namespace steppe::bindings {

void bind_draft(py::module_& m) {
  py::enum_<Pass::Rows>(m, "PassRows")
      .value("batch", Pass::Rows::batch)
      .value("one_a_request", Pass::Rows::one_a_request)
      .value("block_a_request", Pass::Rows::block_a_request)
      .value("context", Pass::Rows::context);
  py::enum_<Pass::Graph>(m, "PassGraph")
      .value("eager", Pass::Graph::eager)
      .value("target", Pass::Graph::target)
      .value("own", Pass::Graph::own);
  py::class_<Pass>(m, "Pass", "Which requests and rows a draft pass runs, how often, and under which graphs.")
      .def(py::init([](Pass::Rows rows, Pass::Graph graph, std::int32_t block, std::int32_t extra,
                       std::int32_t head_rows, std::int32_t count, std::int32_t ahead, bool grows,
                       std::int32_t width, std::int32_t ceiling, std::int32_t max_requests,
                       std::int32_t max_rows) {
             return Pass{rows,  graph, block, extra,   head_rows,    count,
                         ahead, grows, width, ceiling, max_requests, max_rows};
           }),
           py::kw_only(), py::arg("rows") = Pass::Rows::batch, py::arg("graph") = Pass::Graph::eager,
           py::arg("block") = 1, py::arg("extra") = 0, py::arg("head_rows") = 0, py::arg("count") = 1,
           py::arg("ahead") = 0, py::arg("grows") = false, py::arg("width") = 1, py::arg("ceiling") = 0,
           py::arg("max_requests") = 0, py::arg("max_rows") = 0)
      .def_readonly("rows", &Pass::rows)
      .def_readonly("graph", &Pass::graph)
      .def_readonly("block", &Pass::block)
      .def_readonly("extra", &Pass::extra)
      .def_readonly("head_rows", &Pass::head_rows)
      .def_readonly("count", &Pass::count)
      .def_readonly("ahead", &Pass::ahead)
      .def_readonly("grows", &Pass::grows)
      .def_readonly("width", &Pass::width)
      .def_readonly("ceiling", &Pass::ceiling)
      .def_readonly("max_requests", &Pass::max_requests)
      .def_readonly("max_rows", &Pass::max_rows);
  m.def(
      "captured_requests",
      [](std::int64_t requests, const Pass& pass, const std::vector<std::int32_t>& sizes) {
        return captured_requests(requests, pass, sizes);
      },
      py::arg("requests"), py::arg("pass_"), py::arg("sizes"),
      "Requests a drafter's own graph runs for `requests`; 0 where none is large enough.");
  m.def(
      "draft_features",
      [](const FeaturePlan& plan, const Pass& pass, const OwnedBatch& batch, std::int32_t run) {
        if (const char* why = objection(pass)) raise(std::string("pass: ") + why);
        Features target, out;
        check(aggregate(batch.view(), plan, target));
        draft_features(batch.view(), plan, pass, run, target, out);
        return named(plan, out);
      },
      py::arg("plan"), py::arg("pass_"), py::arg("batch"), py::arg("run") = 0,
      "What run `run` of a draft pass reads of a batch, by name; see `features`.");
}

}  // namespace steppe::bindings
