// A running batch prices what the same batch prices from scratch, bit for bit, whatever happens to it.
#include <map>
#include <random>

#include "check.hpp"
#include "plans.hpp"
#include "steppe/running.hpp"

using namespace steppe;

namespace {

bool same(const Estimate& a, const Estimate& b) {
  return a.no_overlap_ns == b.no_overlap_ns && a.overlap_ns == b.overlap_ns &&
         a.resource_ns == b.resource_ns && a.draft_ns == b.draft_ns && a.tokens == b.tokens &&
         a.bottleneck == b.bottleneck;
}

// The same requests as plain arrays, and a running batch beside them.
class Twin {
 public:
  Twin(const Kernel& kernel, RunningSettings settings)
      : kernel_(kernel), settings_(settings), running_(kernel, settings) {}

  void add(std::uint64_t id, std::int32_t computed) {
    CHECK(running_.add(id, computed) == (requests_.contains(id) ? Status::duplicate_request : Status::ok));
    requests_.try_emplace(id, computed);
  }
  void remove(std::uint64_t id) {
    CHECK(running_.remove(id) == (requests_.erase(id) ? Status::ok : Status::unknown_request));
  }
  void advance(std::int32_t tokens) {
    CHECK(running_.advance(tokens) == Status::ok);
    for (auto& [id, computed] : requests_) computed += tokens;
  }
  void run(std::int64_t steps) {
    std::vector<Estimate> each(static_cast<std::size_t>(steps));
    RunTotal total;
    std::int64_t expected = 0, priced = 0;
    const Status status = running_.price_run(steps, each, total);
    for (std::int64_t step = 0; step < total.steps; ++step) {
      Estimate e;
      CHECK(scratch(e) == Status::ok);
      CHECK(same(e, each[static_cast<std::size_t>(step)]));
      expected += e.no_overlap_ns;
      ++priced;
      for (auto& [id, computed] : requests_) ++computed;
    }
    CHECK(total.no_overlap_ns == expected && total.steps == priced);
    Estimate e;
    CHECK((status == Status::ok) == (total.steps == steps));
    if (status != Status::ok) CHECK(scratch(e) == status);
  }
  void compare() {
    Estimate a, b;
    const Status status = scratch(a);
    CHECK(running_.price(b) == status);
    if (status == Status::ok) CHECK(same(a, b));
    CHECK(running_.size() == requests_.size());
    for (const auto& [id, computed] : requests_) CHECK(running_.computed(id) == computed);
  }

 private:
  Status scratch(Estimate& out) {
    std::vector<std::int32_t> scheduled, computed;
    for (const auto& [id, tokens] : requests_) {
      scheduled.push_back(settings_.width);
      computed.push_back(tokens);
    }
    return kernel_.step_time(Batch{scheduled, computed, settings_.width, settings_.sm_budget,
                                   settings_.pad_tokens, settings_.group_tokens},
                             out);
  }

  const Kernel& kernel_;
  RunningSettings settings_;
  RunningBatch running_;
  std::map<std::uint64_t, std::int32_t> requests_;
};

void random_life(const Plan& plan, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<std::int32_t>(random() % n); };
  const Kernel kernel(plan);
  RunningSettings settings;
  settings.width = 1 + below(4);
  settings.sm_budget = seed % 3 == 0 ? 66 : 0;
  settings.pad_tokens = seed % 4 == 0 ? below(20) : 0;
  settings.group_tokens = seed % 5 == 0 ? 64 : 0;
  Twin twin(kernel, settings);
  for (int i = 0; i < 120; ++i) {
    switch (below(6)) {
      case 0:
      case 1:
        twin.add(static_cast<std::uint64_t>(below(60)), below(1u << below(16)));
        break;
      case 2:
        twin.remove(static_cast<std::uint64_t>(below(60)));
        break;
      case 3:
        twin.advance(below(4) == 0 ? below(700) : 1);
        break;
      case 4:
        twin.run(below(9));
        break;
      default:
        break;
    }
    twin.compare();
  }
}

}  // namespace

TEST(random_lives_equal_from_scratch) {
  const Plan plans[] = {test::plan_of(test::plain()),
                        test::plan_of(test::windows()),
                        test::plan_of(test::sharded()),
                        test::plan_of(test::captured()),
                        test::drafting(),
                        test::refined()};
  for (const Plan& plan : plans) {
    for (unsigned seed = 0; seed < 40; ++seed) random_life(plan, seed);
  }
}

TEST(a_long_run_crosses_every_limit) {
  for (const FeaturePlan& features : {test::windows(), test::sharded()}) {
    const Kernel kernel(test::plan_of(features));
    Twin twin(kernel, {});
    for (std::uint64_t id = 0; id < 40; ++id) twin.add(id, static_cast<std::int32_t>(id * id));
    twin.run(1500);
    twin.advance(5000);
    twin.compare();
  }
}

TEST(requests_join_and_leave_exactly_at_a_limit) {
  const Kernel kernel(test::plan_of(test::windows()));
  for (const std::int32_t limit : {128, 512, 1024}) {
    for (std::int32_t joins = limit - 3; joins <= limit + 1; ++joins) {
      for (std::int32_t leaves = 0; leaves < 5; ++leaves) {
        Twin twin(kernel, {});
        twin.add(1, joins);
        twin.add(2, joins - 40);
        twin.add(3, joins + 40);
        for (std::int32_t step = 0; step < 60; ++step) {
          if (step == leaves) twin.remove(1);
          twin.compare();
          twin.advance(1);
        }
      }
    }
  }
}

TEST(it_stops_where_the_deployment_does) {
  FeaturePlan features = test::plain();
  features.max_model_len = 100;
  const Kernel kernel(test::plan_of(features));
  RunningBatch batch(kernel);
  CHECK(batch.add(1, 95) == Status::ok);
  RunTotal total;
  CHECK(batch.price_run(50, {}, total) == Status::beyond_max_len);
  CHECK(total.steps == 5);
  CHECK(batch.computed(1) == 100);
  Estimate e;
  CHECK(batch.price(e) == Status::beyond_max_len);
}

TEST(bad_calls_change_nothing) {
  const Kernel kernel(test::plan_of(test::plain()));
  RunningBatch batch(kernel);
  CHECK(batch.add(1, -1) == Status::negative_tokens);
  CHECK(batch.size() == 0);
  CHECK(batch.advance(-1) == Status::negative_tokens);
  CHECK(batch.remove(7) == Status::unknown_request);
  CHECK(batch.computed(7) == -1);
  CHECK(test::thrown([&] { RunningBatch(kernel, {.width = 0}); }).find("width") != std::string::npos);
  CHECK(test::thrown([&] { RunningBatch(kernel, {.pad_tokens = -1}); }).find("settings") !=
        std::string::npos);
}
