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
