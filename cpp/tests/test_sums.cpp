// The vector loops against the definitions they stand for.
#include <random>

#include "check.hpp"
#include "steppe/features.hpp"
#include "sums.hpp"

using namespace steppe;

TEST(a_shard_by_multiplication_is_the_shard_by_division) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto dcp = static_cast<std::int32_t>(2 + random() % 30);
    const auto stripe = static_cast<std::int32_t>(1 + random() % (1u << random() % 16));
    const sums::Shards shards(dcp, stripe);
    const std::int64_t period = std::int64_t{dcp} * stripe;
    for (int j = 0; j < 300; ++j) {
      std::int64_t t = 1 + static_cast<std::int64_t>((random() & 0x7ffffffe) >> random() % 31);
      if (j < 10) t = INT32_MAX - j;
      if (j >= 200) t = std::max<std::int64_t>(1, t / period * period + j % 3 - 1);
      if (t > INT32_MAX) continue;
      CHECK(shards.of(static_cast<std::uint32_t>(t)) == shard_tokens(t, dcp, stripe));
    }
  }
}

TEST(sums_of_every_length) {
  std::mt19937 random(2);
  for (std::size_t size = 0; size < 200; ++size) {
    std::vector<std::int32_t> scheduled(size, 1), computed(size);
    for (std::int32_t& value : computed) value = static_cast<std::int32_t>(random() >> 2);
    if (size > 3 && size % 3 == 0) scheduled[size - 1] = 2;
    const sums::Scan scan = sums::scan(scheduled.data(), computed.data(), size);
    std::int64_t total = 0, capped = 0, sharded = 0;
    std::int32_t high = 0, low = INT32_MAX;
    const sums::Shards shards(8, 16);
    for (const std::int32_t value : computed) {
      total += value;
      capped += std::min(value, 1 << 29);
      sharded += shard_tokens(std::min<std::int64_t>(value + 1, 1 << 28), 8, 16);
      high = std::max(high, value);
      low = std::min(low, value);
    }
    CHECK(scan.computed == total && scan.high == high && scan.low == low);
    CHECK((scan.differs != 0) == (size > 3 && size % 3 == 0));
    CHECK(sums::capped(computed.data(), size, 1 << 29) == capped);
    CHECK(sums::sharded(computed.data(), size, 1, 1 << 28, shards) == sharded);
  }
}

TEST(a_negative_count_is_seen_wherever_it_stands) {
  for (std::size_t at = 0; at < 70; ++at) {
    std::vector<std::int32_t> scheduled(70, 1), computed(70, 5);
    computed[at] = -1;
    CHECK(sums::scan(scheduled.data(), computed.data(), 70).signs < 0);
    computed[at] = 5;
    scheduled[at] = -1;
    CHECK(sums::scan(scheduled.data(), computed.data(), 70).signs < 0);
  }
}
