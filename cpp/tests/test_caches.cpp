// Blocks of every kind of cache on numbers worked by hand, against counting tokens one by one, and at the
// limits.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "check.hpp"
#include "steppe/caches.hpp"
#include "steppe/memory.hpp"

using namespace steppe;

namespace {

constexpr std::int64_t kHuge = INT64_MAX;

CacheLimits limits(std::int64_t longest = 4096, std::int64_t in_flight = 100) {
  CacheLimits l;
  l.max_model_len = longest;
  l.max_in_flight_tokens = in_flight;
  l.max_encoder_tokens = 50;
  return l;
}

CacheGroup group(CacheKind kind, std::int64_t block = 16, std::int64_t span = 0) {
  CacheGroup g;
  g.kind = kind;
  g.block_size = block;
  g.span = span;
  return g;
}

}  // namespace

TEST(tokens_in_flight) {
  CHECK(max_in_flight_tokens(1, false, 8192) == 8192);
  CHECK(max_in_flight_tokens(1, true, 8192) == 16384);
  CHECK(max_in_flight_tokens(4, true, 8192) == 5 * 8192);
  CHECK(!test::thrown([] { max_in_flight_tokens(0, true, 1); }).empty());
  CHECK(!test::thrown([] { max_in_flight_tokens(1, true, -1); }).empty());
  CHECK(!test::thrown([] { max_in_flight_tokens(kHuge, true, 2); }).empty());
}

TEST(blocks_at_start_up) {
  const CacheLimits l = limits();
  CacheGroup full = group(CacheKind::full);
  CHECK(startup_blocks(full, l, 4096) == 256);
  CHECK(startup_blocks(full, l, 4097) == 257);
  full.shards = 8;
  CHECK(startup_blocks(full, l, 4096) == 32);
  CHECK(startup_blocks(group(CacheKind::reference_window, 16, 64), l, 4096) == 256);
  // 127 tokens live and 100 in flight: 15 blocks, one more because a window may begin inside one.
  CHECK(startup_blocks(group(CacheKind::window, 16, 128), l, 4096) == 16);
  CHECK(startup_blocks(group(CacheKind::window, 16, 128), l, 30) == 3);
  CHECK(startup_blocks(group(CacheKind::chunked, 16, 128), l, 4096) == 15);
  CacheGroup state = group(CacheKind::state_none);
  state.speculative = 3;
  CHECK(startup_blocks(state, l, 4096) == 4);
  state.kind = CacheKind::state_align;
  state.checkpoint = 2;
  CHECK(startup_blocks(state, l, 4096) == 7);
  state.kind = CacheKind::state_all;
  CHECK(startup_blocks(state, l, 4096) == 259);
  CHECK(startup_blocks(group(CacheKind::ring), l, 4096) == 1);
  CHECK(startup_blocks(group(CacheKind::cross), l, 4096) == 4);
  CHECK(admission_cap(full, l) == kHuge);
}

TEST(blocks_at_admission) {
  const CacheLimits l = limits();
  CHECK(admission_blocks(group(CacheKind::full), l, 33) == 3);
  CHECK(admission_blocks(group(CacheKind::reference_window, 16, 64), l, 33) == 3);
  CHECK(admission_blocks(group(CacheKind::window, 16, 128), l, 33) == 3);
  CHECK(admission_blocks(group(CacheKind::window, 16, 128), l, 4000) == 16);
  CHECK(admission_blocks(group(CacheKind::chunked, 16, 128), l, 4000) == 15);
  CacheGroup state = group(CacheKind::state_none);
  state.speculative = 2;
  CHECK(admission_blocks(state, l, 4000) == 3);
  state.kind = CacheKind::state_align;
  CHECK(admission_blocks(state, l, 4000) == 3);
  CHECK(admission_blocks(state, l, 0) == 2);
  state.kind = CacheKind::state_all;
  CHECK(admission_blocks(state, l, 33) == 5);
  CHECK(admission_blocks(group(CacheKind::ring), l, 4000) == 1);
  CHECK(admission_blocks(group(CacheKind::cross), l, 4000, 50) == 4);
}

TEST(blocks_planned_between_steps) {
  CHECK(planned_blocks(group(CacheKind::full), 0) == 0);
  CHECK(planned_blocks(group(CacheKind::full), -3) == 0);
  CHECK(planned_blocks(group(CacheKind::full), 17) == 2);
  CHECK(planned_blocks(group(CacheKind::window, 16, 100), 1000) == 8);
  CHECK(planned_blocks(group(CacheKind::window, 16, 100), 20) == 3);
  CHECK(planned_blocks(group(CacheKind::chunked, 16, 100), 1000) == 7);
  CacheGroup state = group(CacheKind::state_none);
  state.speculative = 1;
  CHECK(planned_blocks(state, 9) == 2);
  state.kind = CacheKind::state_align;
  CHECK(planned_blocks(state, 9) == 3);
  state.kind = CacheKind::state_all;
  CHECK(planned_blocks(state, 33) == 4);
  CHECK(planned_blocks(group(CacheKind::ring), 9) == 1);
  CHECK(planned_blocks(group(CacheKind::reference_window, 16, 8), 33) == 3);
  CHECK(planned_blocks(group(CacheKind::cross), 33) == 0);
}

// A window keeps the blocks that hold a token its next query may still see; the others are given back whole.
TEST(a_window_holds_the_blocks_its_next_query_sees) {
  for (const std::int64_t span : {1, 7, 16, 33, 100}) {
    const CacheGroup g = group(CacheKind::window, 16, span);
    for (std::int64_t computed = 0; computed < 300; ++computed) {
      const CacheStep step{computed, 1, 0};
      std::set<std::int64_t> blocks;
      for (std::int64_t token = std::max<std::int64_t>(0, computed - span + 1); token <= computed; ++token) {
        blocks.insert(token / 16);
      }
      CHECK(held_blocks(g, limits(), step, computed + 1, {}) == static_cast<std::int64_t>(blocks.size()));
    }
  }
}

TEST(a_chunk_is_given_back_when_the_next_begins) {
  const CacheGroup g = group(CacheKind::chunked, 16, 64);
  for (std::int64_t computed = 0; computed < 300; ++computed) {
    std::set<std::int64_t> blocks;
    for (std::int64_t token = computed / 64 * 64; token <= computed; ++token) blocks.insert(token / 16);
    CHECK(held_blocks(g, limits(), {computed, 1, 0}, computed + 1, {}) ==
          static_cast<std::int64_t>(blocks.size()));
  }
}

TEST(blocks_held_by_a_step) {
  const CacheLimits l = limits();
  CHECK(held_blocks(group(CacheKind::full), l, {100, 20, 0}, 120, {}) == 8);
  CHECK(held_blocks(group(CacheKind::ring), l, {100, 20, 0}, 120, {}) == 1);
  CHECK(held_blocks(group(CacheKind::cross), l, {100, 20, 0, 0, 33}, 120, {}) == 3);
  CacheGroup state = group(CacheKind::state_none);
  state.speculative = 2;
  CHECK(held_blocks(state, l, {100, 20, 0}, 120, {}) == 3);
  state.kind = CacheKind::state_all;
  CHECK(held_blocks(state, l, {100, 20, 0}, 120, {}) == 8 + 2 - 6);
  // The prompt's 40 tokens stay; of what follows, a window of 32.
  const CacheGroup kept = group(CacheKind::reference_window, 16, 32);
  CHECK(held_blocks(kept, l, {200, 1, 0, 40}, 201, {}) == 13 - (10 - 3));
  CHECK(held_blocks(kept, l, {50, 1, 0, 40}, 51, {}) == 4);
}

TEST(an_aligned_state_holds_one_block_a_column) {
  CacheGroup g = group(CacheKind::state_align);
  g.speculative = 1;
  const CacheLimits l = limits();
  CHECK(held_blocks(g, l, {0, 10, 0}, 10, {}) == 1 + 1);   // the first column
  CHECK(held_blocks(g, l, {10, 2, 0}, 12, {}) == 1 + 1);   // still in it
  CHECK(held_blocks(g, l, {10, 10, 0}, 20, {}) == 1 + 2);  // the settled state and the new column
  const std::int64_t two[] = {20, 40};
  CHECK(held_blocks(g, l, {40, 10, 30}, 50, two) == 1 + 4);  // settled at 10, in flight to 20 and 40, now 50
  const std::int64_t same[] = {20, 22};
  CHECK(held_blocks(g, l, {22, 1, 12}, 23, same) == 1 + 2);  // all of these end in the second column
}

TEST(a_pool_sums_its_groups) {
  CacheGroup state = group(CacheKind::state_align);
  state.speculative = 1;
  const std::vector<CacheGroup> groups{group(CacheKind::full),
                                       group(CacheKind::full),
                                       group(CacheKind::window, 16, 128),
                                       group(CacheKind::chunked, 16, 64),
                                       state,
                                       group(CacheKind::ring)};
  const CachePool pool(groups, {1000, 3000}, limits());
  CHECK(pool.startup_blocks() == 2 * 256 + 16 + 11 + 3 + 1);
  CHECK(pool.startup_blocks(32) == 2 * 2 + 3 + 2 + 3 + 1);
  CHECK(pool.admission_blocks(33) == 2 * 3 + 3 + 3 + 2 + 1);
  CHECK(pool.admission_blocks(0) == 0);
  CHECK(pool.growing_blocks(33) == 6);
  CHECK(pool.bounded_blocks(1000) == 9 + 4);
  CHECK(pool.constant_blocks() == 3 + 1);
  CHECK(pool.held_blocks({100, 20, 0}) == 2 * 8 + 8 + 4 + 1 + 2 + 1);
  CHECK(pool.bytes(7) == 7000 && pool.bytes(7, 1) == 21000);
  CHECK(pool.groups().size() == 6 && pool.bytes_per_block().size() == 2);
}

TEST(a_request_is_followed_step_by_step) {
  CacheLimits l = limits();
  l.lookahead_tokens = 5;
  CacheGroup state = group(CacheKind::state_align);
  const CachePool pool({group(CacheKind::full), state}, {100}, l);
  RequestBlocks request;
  CHECK(request.held(pool) == 0);
  request.schedule(pool, 0, 30, 0);
  CHECK(request.held(pool, 0) == 3);  // 30 and 5 ahead
  CHECK(request.held(pool, 1) == 1);
  request.schedule(pool, 30, 10, 30);  // the first step not settled yet
  CHECK(request.held(pool, 0) == 3 && request.held(pool, 1) == 2);
  request.schedule(pool, 31, 1, 0);  // nine drafted tokens were rejected; their slots stay
  CHECK(request.held(pool, 0) == 3);
  CHECK(request.held(pool) == request.held(pool, 0) + request.held(pool, 1));
  CHECK(!test::thrown([&] { request.held(pool, 2); }).empty());
  for (std::int64_t i = 0; i < 31; ++i) request.schedule(pool, 32 + i, 1, i);
  CHECK(!test::thrown([&] {
           for (std::int64_t i = 31; i < 60; ++i) request.schedule(pool, 32 + i, 1, i);
         }).empty());
}

TEST(what_cannot_be_is_refused) {
  const auto refused = [](CacheGroup g, CacheLimits l = limits()) {
    return !test::thrown([&] { CachePool({g}, {1}, l); }).empty();
  };
  CHECK(!refused(group(CacheKind::full)));
  CHECK(refused(group(CacheKind::full, 0)) && refused(group(CacheKind::full, kHuge)));
  CHECK(refused(group(CacheKind::window, 16, 0)) && refused(group(CacheKind::chunked, 16, -1)));
  CacheGroup g = group(CacheKind::full);
  g.shards = 0;
  CHECK(refused(g));
  g = group(CacheKind::state_all);
  g.shards = 2;
  CHECK(refused(g));
  g = group(CacheKind::state_none);
  g.speculative = -1;
  CHECK(refused(g));
  g.speculative = 0;
  g.checkpoint = -1;
  CHECK(refused(g));
  g = group(CacheKind::full, std::int64_t{1} << 50);
  g.shards = 1 << 10;
  CHECK(refused(g));
  CHECK(refused(group(CacheKind::full), limits(0)) && refused(group(CacheKind::full), limits(1, -1)));
  for (std::int64_t CacheLimits::* field :
       {&CacheLimits::extra_retained_tokens, &CacheLimits::lookahead_tokens,
        &CacheLimits::max_encoder_tokens}) {
    CacheLimits l = limits();
    l.*field = -1;
    CHECK(refused(group(CacheKind::full), l));
  }
  CHECK(!test::thrown([] { CachePool({}, {}, limits()); }).empty());
  CHECK(!test::thrown([] { CachePool({}, {0}, limits()); }).empty());
}

TEST(figures_beyond_the_limits_are_refused) {
  const CachePool pool({group(CacheKind::full, 1)}, {kHuge / 2}, limits());
  CHECK(!test::thrown([&] { pool.growing_blocks(4097); }).empty());
  CHECK(!test::thrown([&] { pool.bounded_blocks(4097); }).empty());
  CHECK(!test::thrown([&] { pool.admission_blocks(4097); }).empty());
  CHECK(!test::thrown([&] { pool.admission_blocks(1, -1); }).empty());
  CHECK(!test::thrown([&] { pool.startup_blocks(0); }).empty());
  CHECK(!test::thrown([&] { pool.bytes(3); }).empty());
  CHECK(!test::thrown([&] { pool.bytes(1, 1); }).empty());
  CHECK(!test::thrown([&] { pool.held_blocks({-1, 0, 0}); }).empty());
  CHECK(!test::thrown([&] { pool.held_blocks({1, 0, 2}); }).empty());
  CHECK(!test::thrown([&] { pool.held_blocks({1, 0, 0, -1}); }).empty());
  CHECK(!test::thrown([&] { pool.held_blocks({4096, 1, 0}); }).empty());
}

TEST(capacity_of_a_budget) {
  const CachePool pool({group(CacheKind::full)}, {1000, 2000}, limits());
  const std::int64_t enough[] = {300'000, 600'000};
  CacheCapacity c = cache_capacity(pool, enough);
  CHECK(c.fits && c.num_blocks == 300 && c.usable_blocks == 299);
  CHECK(c.startup_blocks == 256 && c.startup_bytes == 256'000);
  CHECK(c.max_concurrency == 300.0 / 256 && c.capacity_tokens == 4800);
  const std::int64_t little[] = {300'000, 101'000};  // 50 blocks on the second stage, one held back
  c = cache_capacity(pool, little);
  CHECK(!c.fits && c.failing_stage == 1 && !c.no_memory);
  CHECK(c.estimated_max_len == 49 * 16 && c.auto_fit_max_len == 49 * 16);
  const std::int64_t nothing[] = {-5, 600'000};
  c = cache_capacity(pool, nothing);
  CHECK(!c.fits && c.failing_stage == 0 && c.no_memory && c.num_blocks == 0 && c.usable_blocks == 0);
  const std::int64_t one[] = {300'000};
  CHECK(!test::thrown([&] { cache_capacity(pool, one); }).empty());
  CHECK(!test::thrown([&] { estimated_max_model_len(pool, 2, 1); }).empty());
  CHECK(estimated_max_model_len(pool, 0, 0) == 0);
  CHECK(estimated_max_model_len(pool, 0, 999) == 0);
  CHECK(estimated_max_model_len(pool, 0, 1'000'000'000) == 4096);
  const CachePool vast({group(CacheKind::full, std::int64_t{1} << 53)}, {1}, limits(std::int64_t{1} << 53));
  const std::int64_t most[] = {kHuge};
  CHECK(!test::thrown([&] { cache_capacity(vast, most); }).empty());
}
