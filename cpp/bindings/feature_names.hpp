// Features as Python reads them: the fixed ones by name, then the classes in plan order.
#pragma once

#include "bindings.hpp"
#include "steppe/features.hpp"

namespace steppe::bindings {

inline constexpr const char* kFeatureNames[] = {
    "tokens",        "padded_tokens", "scheduled",      "requests",     "decodes",
    "decode_tokens", "prefills",      "prefill_tokens", "context_rows", "unpadded",
    "max_context",   "max_chunk",     "sampled_rows",   "group_rows"};
static_assert(sizeof(kFeatureNames) / sizeof(*kFeatureNames) == kFixedFeatures);

pybind11::dict named(const FeaturePlan& plan, const Features& features);

}  // namespace steppe::bindings
