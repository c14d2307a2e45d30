// One kernel, many threads: the same answers, and nothing for a race detector to find.
#include <thread>

#include "check.hpp"
#include "plans.hpp"
#include "steppe/running.hpp"

using namespace steppe;

TEST(threads_share_a_kernel) {
  const Kernel kernel(test::drafting());
  constexpr int threads = 8, steps = 200;
  std::vector<std::vector<std::int64_t>> priced(threads);
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      RunningBatch batch(kernel, {.width = 4});
      for (std::uint64_t id = 0; id < 20; ++id) (void)batch.add(id, static_cast<std::int32_t>(10 * id));
      std::vector<std::int32_t> scheduled(20, 4), computed(20);
      for (int step = 0; step < steps; ++step) {
        for (std::uint64_t id = 0; id < 20; ++id)
          computed[id] = static_cast<std::int32_t>(batch.computed(id));
        Estimate scratch, kept;
        const bool ok = kernel.step_time(Batch{scheduled, computed, 4}, scratch) == Status::ok &&
                        batch.price(kept) == Status::ok && kept.no_overlap_ns == scratch.no_overlap_ns;
        priced[static_cast<std::size_t>(t)].push_back(ok ? kept.no_overlap_ns : -1);
        (void)batch.advance();
      }
      std::vector<TermCost> costs;
      if (kernel.explain(Batch{scheduled, computed, 4}, costs) != Status::ok)
        priced[static_cast<std::size_t>(t)].clear();
    });
  }
  for (std::thread& each : running) each.join();
  for (const auto& each : priced) {
    CHECK(each == priced[0]);
    CHECK(each.size() == steps);
    for (const std::int64_t ns : each) CHECK(ns > 0);
  }
}
