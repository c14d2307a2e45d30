// Pricing allocates nothing, on any path, once kernel and running batch stand.
#include <atomic>
#include <cstdlib>
#include <new>

#include "check.hpp"
#include "plans.hpp"
#include "steppe/running.hpp"

namespace {
std::atomic<std::size_t> allocated{0};
}

void* operator new(std::size_t size) {
  ++allocated;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t align) {
  ++allocated;
  const auto to = static_cast<std::size_t>(align);
  if (void* memory = std::aligned_alloc(to, (size + to - 1) / to * to)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

using namespace steppe;

TEST(the_counter_counts) {
  const std::size_t before = allocated;
  int* volatile kept = new int;  // a compiler may drop a pair it can see through
  delete kept;
  CHECK(allocated == before + 1);
}

TEST(pricing_allocates_nothing) {
  const Plan plans[] = {test::plan_of(test::plain()), test::plan_of(test::sharded()), test::drafting(),
                        test::refined()};
  for (const Plan& plan : plans) {
    const Kernel kernel(plan);
    for (const std::size_t size : {0u, 1u, 64u, 256u, 3000u}) {
      std::vector<std::int32_t> scheduled(size, 1), computed(size, 1000);
      for (int mixed = 0; mixed < 2; ++mixed) {
        if (mixed && size > 0) scheduled[0] = 2048;
        const std::size_t before = allocated;
        Estimate e;
        CHECK(kernel.step_time(Batch{scheduled, computed}, e) == Status::ok);
        CHECK(allocated == before);
      }
    }
  }
}

TEST(a_running_step_allocates_nothing) {
  for (const Plan& plan : {test::plan_of(test::sharded()), test::drafting()}) {
    const Kernel kernel(plan);
    RunningBatch batch(kernel);
    for (std::uint64_t id = 0; id < 256; ++id)
      CHECK(batch.add(id, static_cast<std::int32_t>(100 + id)) == Status::ok);
    std::vector<Estimate> each(50);
    const std::size_t before = allocated;
    Estimate e;
    RunTotal total;
    CHECK(batch.price(e) == Status::ok);
    CHECK(batch.price_run(50, each, total) == Status::ok);
    CHECK(batch.advance(300) == Status::ok);
    CHECK(batch.remove(3) == Status::ok);
    CHECK(allocated == before);
  }
}
