// What pricing arranges (lines, tables, side streams) against the terms one by one.
#include <cmath>
#include <random>

#include "check.hpp"
#include "plans.hpp"
#include "steppe/kernel.hpp"

using namespace steppe;

namespace {

// |sum of the breakdown - the estimate| on each resource, nanoseconds.
double gap(const Kernel& kernel, const Batch& batch) {
  Estimate e;
  std::vector<TermCost> costs;
  CHECK(kernel.step_time(batch, e) == Status::ok);
  CHECK(kernel.explain(batch, costs) == Status::ok);
  std::array<double, kResources> sums{};
  for (const TermCost& cost : costs) {
    sums[static_cast<std::size_t>(cost.term->resource)] += cost.own_s * 1e9;
    sums[static_cast<std::size_t>(Resource::hbm)] += cost.hbm_s * 1e9;
  }
  double most = 0;
  for (std::size_t r = 0; r < kResources; ++r) {
    most = std::max(most, std::fabs(sums[r] - static_cast<double>(e.resource_ns[r])) - 1e-9 * sums[r]);
  }
  return most;
}

std::vector<std::int32_t> some(std::mt19937& random, std::size_t size, std::uint32_t below) {
  std::vector<std::int32_t> out(size);
  for (std::int32_t& value : out) value = static_cast<std::int32_t>(random() % below);
  return out;
}

}  // namespace

TEST(an_estimate_is_the_sum_of_its_terms) {
  std::mt19937 random(3);
  for (const Plan& plan :
       {test::plan_of(test::plain()), test::plan_of(test::windows()), test::plan_of(test::sharded()),
        test::plan_of(test::captured()), test::drafting(), test::refined()}) {
    const Kernel kernel(plan);
    for (int i = 0; i < 300; ++i) {
      const std::size_t size = random() % 80;
      std::vector<std::int32_t> scheduled = some(random, size, i % 3 == 0 ? 2 : 5),
                                computed = some(random, size, 4000);
      if (i % 4 == 1) std::fill(scheduled.begin(), scheduled.end(), 1);
      if (i % 5 == 0 && size > 0) scheduled[size / 2] = 2048;
      const Batch batch{
          scheduled, computed, i % 2 ? 1 : 4, i % 7 == 0 ? 100 : 0, i % 6 == 0 ? 3 : 0, i % 8 == 0 ? 200 : 0};
      CHECK(gap(kernel, batch) < 1.001);
    }
  }
}

TEST(every_row_count_is_the_sum_of_its_terms) {
  for (const Plan& plan : {test::plan_of(test::captured()), test::refined()}) {
    const Kernel kernel(plan);
    for (std::size_t size = 1; size <= 1100; ++size) {
      const std::vector<std::int32_t> scheduled(size, 1), computed(size, 100);
      CHECK(gap(kernel, Batch{scheduled, computed}) < 1.001);
    }
  }
}

TEST(an_sm_budget_slows_what_computes) {
  const Kernel kernel(test::refined());
  const std::vector<std::int32_t> scheduled(64, 1), computed(64, 100);
  Estimate all, some;
  CHECK(kernel.step_time(Batch{scheduled, computed}, all) == Status::ok);
  CHECK(kernel.step_time(Batch{scheduled, computed, 1, 40}, some) == Status::ok);
  CHECK(some.no_overlap_ns > all.no_overlap_ns);
  CHECK(kernel.step_time(Batch{scheduled, computed, 1, 132}, some) == Status::ok);
  CHECK(some.no_overlap_ns == all.no_overlap_ns);
}

TEST(side_stream_hides_no_more_than_the_kernel_it_runs_beside) {
  Plan plan = test::refined();
  const auto time = [](const Plan& p) {
    const std::vector<std::int32_t> scheduled(8, 1), computed(8, 100);
    Estimate e;
    CHECK(Kernel(p).step_time(Batch{scheduled, computed}, e) == Status::ok);
    return e.no_overlap_ns;
  };
  const std::int64_t hidden = time(plan);
  plan.terms[5].params[3] = 4;  // rows at most: the step has 8
  const std::int64_t shown = time(plan);
  CHECK(shown > hidden);
}

TEST(a_refused_batch_is_refused_whatever_its_shape) {
  const Kernel kernel(test::plan_of(test::windows()));
  Estimate e;
  std::vector<std::int32_t> scheduled{1, 1}, computed{1};
  CHECK(kernel.step_time(Batch{scheduled, computed}, e) == Status::length_mismatch);
  computed = {1, -1};
  CHECK(kernel.step_time(Batch{scheduled, computed}, e) == Status::negative_tokens);
  computed = {1, 40000};
  CHECK(kernel.step_time(Batch{scheduled, computed}, e) == Status::beyond_max_len);
  computed = {1, 1};
  CHECK(kernel.step_time(Batch{scheduled, computed, -1}, e) == Status::negative_setting);
  const Kernel open(test::plan_of(test::plain()));
  computed = {INT32_MAX, INT32_MAX};
  CHECK(open.step_time(Batch{scheduled, computed}, e) == Status::too_many_tokens);
  scheduled = {INT32_MAX, INT32_MAX};
  computed = {0, 0};
  CHECK(open.step_time(Batch{scheduled, computed, INT32_MAX}, e) == Status::too_many_tokens);
}

TEST(a_plan_out_of_range_is_refused) {
  using Change = void (*)(Plan&);
  const std::pair<Change, const char*> wrong[] = {
      {[](Plan& p) { p.features.reads[0].dcp = 0; }, "sharding"},
      {[](Plan& p) { p.features.reads[0].interleave = 0; }, "sharding"},
      {[](Plan& p) { p.features.reads[0].limit = -1; }, "limit"},
      {[](Plan& p) { p.features.reads[0].divide = 0; }, "ratio"},
      {[](Plan& p) { p.features.reads[0].tail_ratio = -1; }, "ratio"},
      {[](Plan& p) { p.features.reads.resize(kMaxFeatures); }, "feature classes"},
      {[](Plan& p) { p.features.pairs[0].ratio = 0; }, "prefill class"},
      {[](Plan& p) { p.features.pairs[0].window = -1; }, "prefill class"},
      {[](Plan& p) { p.features.pcp = 0; }, "pcp"},
      {[](Plan& p) { p.features.funnel = 0; }, "funnel"},
      {[](Plan& p) { p.features.capture_sizes = {2, 1}; }, "capture sizes"},
      {[](Plan& p) { p.features.capture_sizes = {0}; }, "capture sizes"},
      {[](Plan& p) { p.features.max_model_len = -1; }, "negative"},
      {[](Plan& p) { p.sm_count = -1; }, "sm_count"},
      {[](Plan& p) { p.stages.clear(); }, "no stages"},
      {[](Plan& p) { p.stages.resize(kMaxStages + 1); }, "too many stages"},
      {[](Plan& p) { p.stages[0].layers = -1; }, "layers"},
      {[](Plan& p) { p.stages[0].layers = INFINITY; }, "layers"},
      {[](Plan& p) { p.stages[0].pass = 1; }, "no pass"},
      {[](Plan& p) { p.passes.clear(); }, "passes"},
      {[](Plan& p) { p.passes[0].count = 1 << 20; }, "too often"},
      {[](Plan& p) { p.passes[0].block = 0; }, "draft pass"},
      {[](Plan& p) { p.terms.resize(kMaxTerms + 1); }, "too many terms"},
      {[](Plan& p) { std::swap(p.terms.front(), p.terms.back()); }, "order"},
      {[](Plan& p) { p.terms[0].law = "none"; }, "no such law"},
      {[](Plan& p) { p.terms[0].params.pop_back(); }, "parameters"},
      {[](Plan& p) { p.terms[0].params[0] = NAN; }, "not finite"},
      {[](Plan& p) { p.terms[0].inputs.pop_back(); }, "features"},
      {[](Plan& p) { p.terms[0].inputs[0] = 95; }, "feature out of range"},
      {[](Plan& p) { p.terms[0].count = -1; }, "count"},
      {[](Plan& p) { p.terms.back().stage = 9; }, "stage out of range"},
  };
  for (const auto& [change, why] : wrong) {
    Plan plan = test::plan_of(test::plain());
    change(plan);
    const std::string said = test::thrown([&] { Kernel{plan}; });
    if (said.find(why) == std::string::npos)
      std::fprintf(stderr, "expected '%s', got '%s'\n", why, said.c_str());
    CHECK(said.find(why) != std::string::npos);
  }
}

TEST(a_law_refuses_numbers_it_cannot_use) {
  const auto refused = [](std::size_t term, std::size_t param, double value) {
    Plan plan = test::refined();
    plan.terms[term].params[param] = value;
    return !test::thrown([&] { Kernel{plan}; }).empty();
  };
  constexpr std::size_t hidden = 5, curve = 6;
  for (const double index : {-1.0, 1e300, 5.0, 6.0}) CHECK(refused(hidden, 2, index));
  CHECK(refused(hidden, 0, 4));    // first after last
  CHECK(refused(curve, 8, 1024));  // the second point's bytes no larger than the first's
  CHECK(refused(curve, 7, 0));     // no time
  Plan plan = test::plan_of(test::plain());
  plan.terms.push_back({"gather", "context_gather", {0, 0, 0, 0}, {kPrefills}, Resource::nic, 1});
  CHECK(test::thrown([&] { Kernel{plan}; }).find("chunk") != std::string::npos);
}
