// Every law as a term of a plan: the numbers it lifts, the features it reads, and what it refuses.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "steppe/kernel.hpp"
#include "steppe/laws/latent.hpp"
#include "steppe/laws/recurrent.hpp"

using namespace steppe;

namespace {

struct Requests {
  std::vector<std::int32_t> scheduled, computed;
  Batch batch(std::int32_t threshold = 1) const { return {scheduled, computed, threshold}; }
};

Plan plan_of(const char* law, std::vector<double> params, std::vector<std::uint16_t> inputs,
             FeaturePlan features = {}) {
  Plan plan;
  plan.features = std::move(features);
  plan.stages = {{"layer", 1, 0}};
  plan.sm_count = 100;
  plan.terms = {{"the term", law, std::move(params), std::move(inputs), Resource::sm, 0, 1, true, true}};
  return plan;
}

// Microseconds of the one term.
double cost_us(const Plan& plan, const Batch& batch) {
  std::vector<TermCost> costs;
  CHECK(Kernel(plan).explain(batch, costs) == Status::ok);
  return (costs.at(0).own_s + costs.at(0).hbm_s) * 1e6;
}

bool near(double got, double want) { return std::fabs(got - want) <= 1e-9 * std::fabs(want) + 1e-12; }

constexpr std::uint16_t kRead = kFixedFeatures;

std::string refusal(const Plan& plan) {
  return test::thrown([&] { Kernel kernel(plan); });
}

}  // namespace

TEST(host_time_by_graph) {
  const Plan plan = plan_of("host_launch", {1e-6, 2e-6, 4e-6, 8e-6, 10}, {kScheduled});
  CHECK(near(cost_us(plan, Requests{}.batch()), 1));                     // empty: the replay alone
  CHECK(near(cost_us(plan, Requests{{1, 1}, {5, 5}}.batch()), 1 + 8));   // uniform decodes
  CHECK(near(cost_us(plan, Requests{{1, 2}, {5, 5}}.batch()), 2 + 8));   // mixed
  CHECK(near(cost_us(plan, Requests{{10, 1}, {0, 5}}.batch()), 4 + 8));  // above the ceiling
}

TEST(a_credit_needs_both_gates) {
  const Plan plan = plan_of("both", {3e-6}, {kDecodes, kPrefills});
  CHECK(near(cost_us(plan, Requests{{1, 9}, {5, 0}}.batch()), 3));
  CHECK(cost_us(plan, Requests{{1, 1}, {5, 5}}.batch()) == 0);
  CHECK(cost_us(plan, Requests{{9, 9}, {5, 5}}.batch()) == 0);
}

// Chunks of context gathered: 1 us and 0.1 us a token, 100 tokens at once.
TEST(context_is_gathered_in_runs_of_ascending_chunks) {
  const Plan plan = plan_of("context_gather", {1e-6, 1e-7, 0, 100}, {kPrefills});
  CHECK(near(cost_us(plan, Requests{{9}, {100}}.batch()), 1 + 10));
  CHECK(near(cost_us(plan, Requests{{9}, {101}}.batch()), 2 + 10.1));      // two gathers
  CHECK(near(cost_us(plan, Requests{{9, 8}, {60, 60}}.batch()), 2 + 12));  // one run of 120
  CHECK(near(cost_us(plan, Requests{{9, 8, 7}, {60, 0, 60}}.batch()),
             2 + 12));  // 7, then fresh 8, then 9: two runs
  CHECK(
      near(cost_us(plan, Requests{{9, 8, 9}, {60, 0, 30}}.batch()), 1 + 9));  // fresh 8 first, then both of 9
  CHECK(near(cost_us(plan, Requests{{9, 9, 9}, {60, 0, 30}}.batch()), 2 + 9));  // alike: in the order given
  CHECK(cost_us(plan, Requests{{9, 1}, {0, 50}}.batch()) == 0);                 // decodes gather nothing
  CHECK(near(cost_us(plan, Requests{{1, 1}, {50, 50}}.batch(0)), 1 + 10));      // prefills at threshold 0
  const Plan peak = plan_of("context_gather", {1e-6, 1e-7, 1e-6, 100}, {kPrefills});
  CHECK(near(cost_us(peak, Requests{{9}, {100}}.batch()), 100));
}

TEST(prefill_and_collective_terms) {
  FeaturePlan features;
  features.pairs = {{}};
  const Plan ramped = plan_of("ramped_prefill", {1e-6, 1e-8, 10}, {kPrefills, kRead, kTokens}, features);
  CHECK(near(cost_us(ramped, Requests{{10}, {0}}.batch()), 1 + 50 * 2 * 0.01));
  const Plan protocols = plan_of("two_protocol", {8, 4, 100, 4, 100}, {kTokens});
  CHECK(near(cost_us(protocols, Requests{{50}, {0}}.batch()), 8 / std::cbrt(2.0)));
  const Plan curve = plan_of("curve", {1, 64, 3, 1e18, 3, 1e18, 32, 8, 128, 16}, {kTokens});
  CHECK(near(cost_us(curve, Requests{{128}, {0}}.batch()), 16));
  CHECK(near(cost_us(curve, Requests{{64}, {0}}.batch()),
             3 / std::cbrt(2.0)));  // below the fee of the measured step
  const Plan convolution =
      plan_of("conv_context", {10, 1e8, 2, 0.5, 0.25, 0.125, 0.5, 0}, {kPrefills, kPrefillTokens});
  CHECK(near(cost_us(convolution, Requests{{8}, {0}}.batch()), 2 + 5 + 20 + 6.4));
  features.pairs = {{.figure = PairFigure::chunked, .slack = 64}};
  const Plan scan = plan_of("scan_context", {2, 50, 1e8, 1, 3, 0.5, 0.25, 0.125, 1, 0},
                            {kPrefills, kPrefillTokens, kRead, kMaxChunk}, features);
  laws::ScanContext law{2, 50, 100, 1, 3, 0.5, 0.25, 0.125, 1, 0};
  CHECK(near(cost_us(scan, Requests{{70, 8}, {0, 0}}.batch()), law.us(2, 78, 70 + 64, 70)));
  CHECK(near(cost_us(scan, Requests{{8}, {0}}.batch()), law.us(1, 8, 64, 64)));  // one chunk at least
}

TEST(latent_attention_term) {
  FeaturePlan features;
  features.reads = {{}};
  features.pairs = {{}, {.figure = PairFigure::visible}};
  //                             h  e   sms   bw   F1 L1 k0   k1    u  r   S  F  w1 c0 c1  cF1 al  ts tc   cF
  //                             cw1 cc0 cc1 mixed
  const std::vector<double> p = {4, 2, 1000, 1e15, 6,   9, 0.5,  0.25, 1, 1e9, 8, 7,
                                 2, 0, 0.5,  3,    0.5, 4, 0.25, 11,   1, 0,   2, 15};
  const Plan plan = plan_of(
      "mla", p, {kTokens, kDecodes, kRead, kMaxContext, kDecodeTokens, kPrefills, kRead + 1, kRead + 2},
      features);
  laws::MlaDecode decode{4, 2, 1000, 1e9, 6, 9, 0.5, 0.25, 1, 1e9, 8};
  const laws::MlaContext context{4, 3, 0.5, 4, 0.25};
  const laws::Projections alone{4, 7, 2, 0, 0.5}, all{4, 11, 1, 0, 2};
  const auto attended = [&](const laws::DecodeBatch& b) {
    return decode.fixed_us(b) + std::hypot(decode.compute_us(b), decode.memory_us(b));
  };
  const laws::DecodeBatch two{2, 42, 31, 2};
  CHECK(near(cost_us(plan, Requests{{1, 1}, {10, 30}}.batch()), attended(two) + alone.us(2)));
  const double prefill = context.us({1, 0, 50.0 + 100, 20, 0, 0});
  CHECK(near(cost_us(plan, Requests{{10}, {10}}.batch()), all.us(10) + prefill));
  CHECK(near(cost_us(plan, Requests{{1, 1, 10}, {10, 30, 10}}.batch()),
             attended(two) + all.us(12) + prefill + 15));
}

TEST(sparse_attention_term) {
  FeaturePlan features;
  features.reads = {{.limit = 8}, {.divide = 4}, {}};
  //                       h  k0 k1 kc ts F1 Fi i0   i1   i2   F  w1 c0 c1 limit limit2 ratio2 scored projects
  std::vector<double> p = {2, 1, 0, 1, 0, 0, 3, 0.5, 0.5, 0.25, 10, 1, 0, 1, 8, 100, 4, 1, 1};
  const std::vector<std::uint16_t> inputs = {kDecodes,  kTokens,   kDecodeTokens, kRead,
                                             kRead + 1, kRead + 2, kMaxContext,   kPrefills};
  const laws::Projections projections{2, 10, 1, 0, 1};
  laws::Sparse law;
  law.h = 2;
  law.k0 = 1;
  law.kc = 1;
  law.Fi = 3;
  law.i0 = 0.5;
  law.i1 = 0.5;
  law.i2 = 0.25;
  // contexts 6 and 40: selected 6 + 8, pooled (6 + 40)/4, scored 46, longest 40
  const laws::SparseBatch b{2, 2, 14 + 11.5, 46, 8 + 10, 40, 40};
  CHECK(near(cost_us(plan_of("sparse", p, inputs, features), Requests{{1, 1}, {5, 39}}.batch()),
             law.us(b) + projections.us(2)));
  // beside prefills the projections are theirs
  CHECK(near(cost_us(plan_of("sparse", p, inputs, features), Requests{{1, 1, 9}, {5, 39, 0}}.batch()),
             law.us(b)));
  p[18] = 0;
  CHECK(near(cost_us(plan_of("sparse", p, inputs, features), Requests{{1, 1, 9}, {5, 39, 0}}.batch()),
             law.us(b) + projections.us(11)));
  p[16] = 0;  // no second selection
  p[17] = 0;  // nothing scored
  const laws::SparseBatch single{2, 2, 14, 46, 8, 0, 40};
  CHECK(near(cost_us(plan_of("sparse", p, inputs, features), Requests{{1, 1}, {5, 39}}.batch()),
             law.us(single) + projections.us(2)));
}

TEST(a_term_that_cannot_be_is_refused_by_name) {
  const Plan good = plan_of("affine", {0, 1}, {kTokens, kTokens});
  CHECK(refusal(good).empty());
  const auto says = [&](const char* what, auto change) {
    Plan plan = good;
    change(plan.terms[0], plan);
    const std::string message = refusal(plan);
    CHECK(message.find(what) != std::string::npos);
    return message;
  };
  CHECK(says("2 parameters", [](Term& t, Plan&) { t.params = {1}; }).find("the term") != std::string::npos);
  says("2 features", [](Term& t, Plan&) { t.inputs = {0}; });
  says("not finite", [](Term& t, Plan&) { t.params[1] = NAN; });
  says("no such law", [](Term& t, Plan&) { t.law = "affinity"; });
  says("feature out of range", [](Term& t, Plan&) { t.inputs[1] = kFixedFeatures; });
  says("count", [](Term& t, Plan&) { t.count = -1; });
  says("stage out of range", [](Term& t, Plan&) { t.stage = 1; });
  says("no stages", [](Term&, Plan& p) { p.stages.clear(), p.terms.clear(); });
  says("point", [](Term& t, Plan&) { t.law = "curve", t.inputs = {0}, t.params = {1, 0, 0, 1, 0, 1}; });
  says("positive",
       [](Term& t, Plan&) { t.law = "curve", t.inputs = {0}, t.params = {1, 0, 0, 1, 0, 1, 0, 5}; });
  says("chunk", [](Term& t, Plan&) { t.law = "context_gather", t.inputs = {0}, t.params = {1, 1, 1, 0}; });
  const auto hidden = [](std::vector<double> params) {
    return Term{"hidden", "hidden_behind", std::move(params), {kTokens}, Resource::sm, 0, 1, true};
  };
  says("come before", [&](Term&, Plan& p) { p.terms.push_back(hidden({0, 1, 0, 9, 0})); });
  says("come before", [&](Term&, Plan& p) { p.terms.push_back(hidden({1, 0, 0, 9, 0})); });
  says("its own law", [&](Term&, Plan& p) {
    p.terms.push_back(hidden({0, 0, 0, 9, 0})), p.terms.push_back(hidden({1, 1, 0, 9, 0}));
  });
  says("another pass", [&](Term& t, Plan& p) {
    p.passes.push_back(Pass{});
    p.stages.push_back({"draft", 1, 1});
    p.terms.push_back(t);
    p.terms.push_back(hidden({0, 0, 0, 9, 0}));
    p.terms[1].stage = p.terms[2].stage = 1;
  });
}

TEST(the_table_of_laws_names_what_each_takes) {
  for (const LawInfo& law : laws_table()) {
    CHECK(!law.params.empty() && !law.inputs.empty());
    CHECK(refusal(plan_of(law.name, {}, {})).find(law.name) != std::string::npos);
  }
}

TEST(kernels_move) {
  Kernel one(plan_of("affine", {1e-6, 0}, {kTokens, kTokens}));
  Kernel other(std::move(one));
  one = std::move(other);
  Estimate e;
  const Requests decode{{1}, {5}};
  CHECK(one.step_time(decode.batch(), e) == Status::ok && e.no_overlap_ns == 999 + (e.no_overlap_ns == 1000));
}
