#include "batch.hpp"
#include "feature_names.hpp"

namespace py = pybind11;

namespace steppe::bindings {

py::dict named(const FeaturePlan& plan, const Features& features) {
  py::dict out;
  for (int i = 0; i < kFixedFeatures; ++i) out[kFeatureNames[i]] = features[i];
  py::list reads, pairs;
  int at = kFixedFeatures;
  for (std::size_t i = 0; i < plan.reads.size(); ++i) reads.append(features[at++]);
  for (std::size_t i = 0; i < plan.pairs.size(); ++i) pairs.append(features[at++]);
  out["reads"] = reads;
  out["pairs"] = pairs;
  out["uniform"] = features.uniform;
  return out;
}

void bind_features(py::module_& m) {
  py::dict places;
  for (int i = 0; i < kFixedFeatures; ++i) places[kFeatureNames[i]] = i;
  m.attr("FEATURES") = places;
  m.def("shard_tokens", &shard_tokens, py::arg("tokens"), py::arg("dcp"), py::arg("interleave"),
        "Tokens the slowest decode-context rank reads of a context of `tokens`.");
  m.def("causal_pairs", &causal_pairs, py::arg("scheduled"), py::arg("computed"), py::arg("window") = 0,
        "(query, key) pairs of `scheduled` new tokens on `computed` cached ones under a window (0 = full).");
}

void bind_feature_probe(py::module_& m) {
  m.def(
      "features",
      [](const FeaturePlan& plan, const OwnedBatch& batch) {
        Features out;
        check(aggregate(batch.view(), plan, out));
        return named(plan, out);
      },
      py::arg("plan"), py::arg("batch"),
      "What a plan reads of a batch: every fixed feature by name, `reads` and `pairs` by class, and "
      "`uniform`.");
}

}  // namespace steppe::bindings
