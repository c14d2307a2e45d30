#include "sums.hpp"

#include <algorithm>
#include <bit>

#ifdef STEPPE_VECTOR_CLONES
#define STEPPE_VECTOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define STEPPE_VECTOR
#endif

namespace steppe::sums {

STEPPE_VECTOR
Scan scan(const std::int32_t* scheduled, const std::int32_t* computed, std::size_t size) noexcept {
  Scan s;
  const std::int32_t first = size > 0 ? scheduled[0] : 0;
  std::int64_t total = 0;
  std::int32_t high = 0, low = INT32_MAX, signs = 0, differs = 0;
  for (std::size_t i = 0; i < size; ++i) {
    total += computed[i];
    high = std::max(high, computed[i]);
    low = std::min(low, computed[i]);
    signs |= scheduled[i] | computed[i];
    differs |= scheduled[i] ^ first;
  }
  s.computed = total;
  s.high = high;
  s.low = low;
  s.signs = signs;
  s.differs = differs;
  return s;
}

STEPPE_VECTOR
std::int64_t capped(const std::int32_t* values, std::size_t size, std::int32_t cap) noexcept {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < size; ++i) total += std::min(values[i], cap);
  return total;
}

bool Shards::holds(std::int32_t dcp, std::int32_t interleave) noexcept {
  return std::int64_t{dcp} * interleave <= (std::int64_t{1} << 30);
}

// ceil(2^(31+l) / d) with l = ceil(log2 d): its error is below 2^-31 a unit, too small to reach the next
// integer.
Shards::Shards(std::int32_t dcp, std::int32_t interleave) noexcept
    : period(static_cast<std::uint32_t>(dcp) * static_cast<std::uint32_t>(interleave)),
      stripe(static_cast<std::uint32_t>(interleave)) {
  shift = 31 + static_cast<std::uint32_t>(std::bit_width(period - 1));
  reciprocal = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + period - 1) / period);
}

STEPPE_VECTOR
std::int64_t sharded(const std::int32_t* values, std::size_t size, std::int32_t shift, std::int32_t cap,
                     const Shards& given) noexcept {
  const Shards shards = given;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < size; ++i) {
    total += shards.of(static_cast<std::uint32_t>(std::min(values[i] + shift, cap)));
  }
  return total;
}

}  // namespace steppe::sums
