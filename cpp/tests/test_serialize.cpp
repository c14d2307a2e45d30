// Bytes in, the same kernel out; anything else refused with a reason, never a crash.
#include <random>

#include "check.hpp"
#include "plans.hpp"
#include "steppe/serialize.hpp"

using namespace steppe;

namespace {

std::vector<Plan> plans() { return {test::plan_of(test::sharded()), test::drafting(), test::refined()}; }

Estimate priced(const Plan& plan) {
  const std::vector<std::int32_t> scheduled{1, 1, 700}, computed{5000, 20, 100};
  Estimate e;
  CHECK(Kernel(plan).step_time(Batch{scheduled, computed}, e) == Status::ok);
  return e;
}

// The checksum made right again, so that what lies behind it is reached.
void seal(std::vector<std::uint8_t>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t i = 28; i < bytes.size(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  for (std::size_t i = 0; i < 8; ++i) bytes[20 + i] = static_cast<std::uint8_t>(hash >> (8 * i));
}

}  // namespace

TEST(a_kernel_comes_back_as_it_was) {
  for (const Plan& plan : plans()) {
    const std::vector<std::uint8_t> bytes = serialize(Stored{plan, std::nullopt, -1, "{\"from\": \"here\"}"});
    const Stored back = deserialize(bytes);
    CHECK(back.provenance == "{\"from\": \"here\"}");
    CHECK(!back.caches);
    CHECK(serialize(back) == bytes);
    CHECK(priced(back.plan).resource_ns == priced(plan).resource_ns);
  }
}

TEST(caches_travel_along) {
  const CachePool pool({{CacheKind::full, 16}, {CacheKind::window, 16, 1, 128}}, {65536}, {8192, 2048});
  const Stored back = deserialize(serialize(Stored{plans()[0], pool, 123456789, ""}));
  CHECK(back.caches && back.caches->groups() == pool.groups());
  CHECK(back.kv_bytes == 123456789);
  CHECK(back.caches && back.caches->admission_blocks(5000) == pool.admission_blocks(5000));
}

TEST(every_truncation_is_refused) {
  const std::vector<std::uint8_t> bytes = serialize(plans()[1]);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(!test::thrown([&] { deserialize(std::span(bytes).first(size)); }).empty());
  }
  std::vector<std::uint8_t> longer = bytes;
  longer.push_back(0);
  CHECK(!test::thrown([&] { deserialize(longer); }).empty());
}

TEST(every_flipped_byte_is_refused) {
  std::vector<std::uint8_t> bytes = serialize(plans()[0]);
  for (std::uint8_t& byte : bytes) {
    byte ^= 0x55;
    CHECK(!test::thrown([&] { deserialize(bytes); }).empty());
    byte ^= 0x55;
  }
}

TEST(another_version_says_which) {
  std::vector<std::uint8_t> bytes = serialize(plans()[0]);
  bytes[8] = 99;
  CHECK(test::thrown([&] { deserialize(bytes); }).find("version 99") != std::string::npos);
}

// Damage behind a right checksum: refused, or a kernel that prices without a crash.
TEST(random_damage_never_crashes) {
  std::mt19937 random(4);
  int built = 0, refused = 0;
  for (const Plan& plan : plans()) {
    const std::vector<std::uint8_t> whole = serialize(plan);
    for (int i = 0; i < 3000; ++i) {
      std::vector<std::uint8_t> bytes = whole;
      for (unsigned k = 0; k <= random() % 4; ++k)
        bytes[28 + random() % (bytes.size() - 28)] = static_cast<std::uint8_t>(random());
      seal(bytes);
      try {
        const Stored stored = deserialize(bytes);
        const Kernel kernel(stored.plan);
        const std::vector<std::int32_t> scheduled{1, 1, 300}, computed{5000, 20, 0};
        Estimate e;
        (void)kernel.step_time(Batch{scheduled, computed}, e);
        ++built;
      } catch (const std::invalid_argument&) {
        ++refused;
      }
    }
  }
  CHECK(built > 100 && refused > 100);
}
