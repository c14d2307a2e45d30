// Plans made by hand that read everything a plan can read: every kind of decode read, prefill classes, draft
// passes, padding to captured sizes, and laws of each shape.
#pragma once

#include <string>
#include <vector>

#include "steppe/kernel.hpp"

namespace test {

using namespace steppe;

inline std::uint16_t read_at(std::size_t i) { return static_cast<std::uint16_t>(kFixedFeatures + i); }

inline Term affine(const std::string& name, std::uint16_t x, double constant, double slope,
                   std::uint16_t stage, Resource resource = Resource::hbm, bool serial = false) {
  return {name, "affine", {constant, slope}, {x, x}, resource, stage, 1, serial, false};
}

// One affine term a feature, each with a slope of its own, so that no two features can stand in for one
// another.
inline Plan plan_of(FeaturePlan features) {
  Plan plan;
  plan.features = std::move(features);
  plan.sm_count = 132;
  plan.stages = {{"layer", 32, 0}, {"head", 1, 0}};
  const int classes = plan.features.count();
  for (int f = 0; f < classes; ++f) {
    const auto feature = static_cast<std::uint16_t>(f);
    Term term = affine("feature " + std::to_string(f), feature, 1e-6, (1.0 + f) * 1.7e-9, 0);
    if (f == kTokens) term.derate = true, term.resource = Resource::sm;
    plan.terms.push_back(term);
  }
  plan.terms.push_back(
      {"collective", "two_piece", {4e-6, 3e-9, 2e-9}, {kPaddedTokens, kPaddedTokens}, Resource::nvlink, 0});
  plan.terms.push_back({"routed", "touched_experts", {1e-4, -0.06, 1}, {kTokens}, Resource::hbm, 0, 1, true});
  plan.terms.push_back({"prefill",
                        "ramped_prefill",
                        {1e-6, 1e-12, 100},
                        {kPrefills, read_at(plan.features.reads.size()), kTokens},
                        Resource::sm,
                        0,
                        1,
                        false,
                        true});
  plan.terms.push_back(affine("sampler", kSampledRows, 1e-6, 1e-8, 1));
  plan.terms.push_back(
      {"launches", "host_launch", {1e-4, 2e-4, 3e-4, 1e-5, 512}, {kScheduled}, Resource::host, 1});
  return plan;
}

inline FeaturePlan plain() {
  FeaturePlan f;
  f.reads = {{}};
  f.pairs = {{}};
  return f;
}
inline FeaturePlan windows() {
  FeaturePlan f = plain();
  f.reads = {{},           {.limit = 128}, {.limit = 1024}, {.limit = 0}, {.limit = 512, .tail_ratio = 4},
             {.divide = 8}};
  f.max_model_len = 40000;
  return f;
}
inline FeaturePlan sharded() {
  FeaturePlan f = plain();
  f.reads = {{.dcp = 8},
             {.dcp = 4, .interleave = 16},
             {.dcp = 3, .interleave = 5},
             {.limit = 300, .dcp = 2, .interleave = 64},
             {.divide = 4, .dcp = 4, .shard_sum = true},
             {.limit = 256, .tail_ratio = 16, .dcp = 2},
             {.limit = 0, .dcp = 2}};
  f.max_model_len = 100000;
  return f;
}
inline FeaturePlan captured() {
  FeaturePlan f = windows();
  f.pad_to_capture = true;
  f.capture_sizes = {1, 2, 4, 8, 16, 24, 32, 64, 128, 256, 512};
  f.capture_ceiling = 512;
  f.uniform_width = 4;
  f.funnel = 3;
  return f;
}

// A plan with a drafter of two passes: the batch with a row added, and two runs of one row a request that
// grow.
inline Plan drafting() {
  FeaturePlan features = captured();
  features.reads.push_back({.dcp = 4, .interleave = 2});
  Plan plan = plan_of(std::move(features));
  const std::vector<Term> target = plan.terms;
  const auto draft = [&](Pass pass, const char* name) {
    plan.passes.push_back(pass);
    plan.stages.push_back({name, 1, static_cast<std::uint16_t>(plan.passes.size() - 1)});
    for (Term term : target) {
      if (term.stage != 0) continue;
      term.stage = static_cast<std::uint16_t>(plan.stages.size() - 1);
      plan.terms.push_back(term);
    }
  };
  Pass wide;
  wide.rows = Pass::Rows::batch;
  wide.graph = Pass::Graph::target;
  wide.extra = 1;
  wide.head_rows = 1;
  draft(wide, "draft batch");
  Pass rows;
  rows.rows = Pass::Rows::one_a_request;
  rows.graph = Pass::Graph::own;
  rows.ahead = 1;
  rows.count = 2;
  rows.grows = true;
  rows.head_rows = 1;
  rows.ceiling = 128;
  rows.max_requests = 128;
  draft(rows, "draft rows");
  Pass same;
  same.rows = Pass::Rows::context;
  same.count = 3;
  draft(same, "draft context");
  return plan;
}

// Laws of the refined set, with a side stream: what a kernel of a fitted deployment runs.
inline Plan refined() {
  FeaturePlan f = captured();
  f.uniform_width = 1;
  f.funnel = 1;
  Plan plan;
  plan.features = f;
  plan.sm_count = 132;
  plan.stages = {{"layer", 60, 0}, {"head", 1, 0}};
  const std::vector<double> gemm = {2048, 4096, 132, 3.35e12, 5e7, 9.9e14, 2,    2,    1,   0.7, 0.8, 1,
                                    1,    0.5,  0.1, 10,      3,   2.5,    0.01, 0.01, 128, 0.1, 0.2, 8,
                                    0,    0,    64,  64,      0,   128,    128,  0,    0,   0};
  const std::vector<double> experts = {128, 8,   1,    4096, 1536, 3,   3.35e12, 9.9e14, 1,   128, 0,  5,
                                       3,   0.5, 0.01, 1,    1,    0.1, 0.1,     0.6,    0.8, 4,   0.5};
  const std::vector<double> decode = {32,   8,    128, 2,   132, 3.35e12, 3, 2, 1, 1, 0.01, 1e-4, 1e-4,
                                      0.01, 1e-4, 0.8, 1e5, 8,   0,       0, 0, 0, 0, 1024, 1};
  plan.terms = {
      {"qkv", "gemm", gemm, {kPaddedTokens, kUnpadded}, Resource::sm, 0, 1, true, true},
      {"attention",
       "attention_decode",
       decode,
       {kDecodes, read_at(2), kMaxContext, kDecodeTokens, kPrefills},
       Resource::sm,
       0,
       1,
       true},
      {"shared", "gemm", gemm, {kPaddedTokens, kUnpadded}, Resource::sm, 0, 1, true, true},
      {"activation", "affine", {2e-6, 1e-9}, {kPaddedTokens, kPaddedTokens}, Resource::hbm, 0, 1, true},
      {"experts", "experts", experts, {kGroupRows}, Resource::sm, 0, 1, true, true},
      {"side stream", "hidden_behind", {2, 3, 4, 256, 1.5}, {kPaddedTokens}, Resource::sm, 0, 1, true},
      {"reduce",
       "curve",
       {8192, 1e6, 3, 2e4, 9, 1e5, 1024, 4, 65536, 6, 1048576, 20},
       {kPaddedTokens},
       Resource::nvlink,
       0,
       2,
       true},
      {"lm head", "gemm", gemm, {kSampledRows, kUnpadded}, Resource::sm, 1, 1, true, true},
  };
  return plan;
}

}  // namespace test
