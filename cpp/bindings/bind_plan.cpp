#include "bindings.hpp"
#include "steppe/plan.hpp"

namespace py = pybind11;

namespace steppe::bindings {

void bind_plan(py::module_& m) {
  bind_features(m);
  py::enum_<Resource>(m, "Resource")
      .value("sm", Resource::sm)
      .value("hbm", Resource::hbm)
      .value("nvlink", Resource::nvlink)
      .value("nic", Resource::nic)
      .value("host", Resource::host);
  py::enum_<PairFigure>(m, "PairFigure")
      .value("pairs", PairFigure::pairs)
      .value("visible", PairFigure::visible)
      .value("context", PairFigure::context)
      .value("chunked", PairFigure::chunked)
      .value("ranked", PairFigure::ranked);
  py::class_<ReadClass>(m, "ReadClass")
      .def(py::init<std::int64_t, std::int64_t, std::int64_t, std::int32_t, std::int32_t, bool>(),
           py::kw_only(), py::arg("limit") = INT64_MAX, py::arg("tail_ratio") = 0, py::arg("divide") = 1,
           py::arg("dcp") = 1, py::arg("interleave") = 1, py::arg("shard_sum") = false);
  py::class_<PairClass>(m, "PairClass")
      .def(py::init<PairFigure, std::int64_t, std::int64_t, std::int64_t, std::int64_t>(), py::kw_only(),
           py::arg("figure") = PairFigure::pairs, py::arg("window") = 0, py::arg("slack") = 0,
           py::arg("select") = 0, py::arg("ratio") = 1);
  py::class_<Term>(m, "Term")
      .def(py::init<std::string, std::string, std::vector<double>, std::vector<std::uint16_t>, Resource,
                    std::uint16_t, double, bool, bool>(),
           py::kw_only(), py::arg("name"), py::arg("law"), py::arg("params"), py::arg("inputs"),
           py::arg("resource"), py::arg("stage"), py::arg("count") = 1.0, py::arg("serial") = false,
           py::arg("derate") = false)
      .def_readonly("name", &Term::name)
      .def_readonly("law", &Term::law)
      .def_readonly("params", &Term::params)
      .def_readonly("inputs", &Term::inputs)
      .def_readonly("resource", &Term::resource)
      .def_readonly("stage", &Term::stage)
      .def_readonly("count", &Term::count)
      .def_readonly("serial", &Term::serial)
      .def_readonly("derate", &Term::derate);
  py::class_<Stage>(m, "Stage")
      .def(py::init<std::string, double, std::uint16_t>(), py::kw_only(), py::arg("name"),
           py::arg("layers") = 1.0, py::arg("pass_") = 0)
      .def_readonly("name", &Stage::name)
      .def_readonly("layers", &Stage::layers)
      .def_readonly("pass_", &Stage::pass);
  py::class_<FeaturePlan>(m, "FeaturePlan")
      .def(py::init<std::vector<ReadClass>, std::vector<PairClass>, std::int32_t, bool, bool, std::int32_t,
                    std::int32_t, std::int64_t, std::int32_t, std::vector<std::int32_t>>(),
           py::kw_only(), py::arg("reads"), py::arg("pairs"), py::arg("pcp") = 1,
           py::arg("replicate_short_chunks") = false, py::arg("pad_to_capture") = false,
           py::arg("capture_ceiling") = 0, py::arg("uniform_width") = 1, py::arg("max_model_len") = 0,
           py::arg("funnel") = 1, py::arg("capture_sizes") = std::vector<std::int32_t>{});
  bind_feature_probe(m);
  bind_draft(m);
  py::class_<Plan>(m, "Plan")
      .def(py::init<FeaturePlan, std::vector<Pass>, std::vector<Stage>, std::vector<Term>, std::int32_t>(),
           py::kw_only(), py::arg("features"), py::arg("passes"), py::arg("stages"), py::arg("terms"),
           py::arg("sm_count"))
      .def_readonly("features", &Plan::features)
      .def_readonly("passes", &Plan::passes)
      .def_readonly("stages", &Plan::stages)
      .def_readonly("terms", &Plan::terms);

  py::dict laws;
  for (const LawInfo& law : laws_table())
    laws[law.name] = py::make_tuple(py::tuple(py::cast(law.params)), py::tuple(py::cast(law.inputs)));
  m.attr("LAWS") = laws;
}

}  // namespace steppe::bindings
