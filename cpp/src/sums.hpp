// Loops over the requests of a batch, compiled once for each vector width the machine may have. Whole tokens
// only, so that every width gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steppe::sums {

// What tells whether every request schedules the same, and where their contexts lie.
struct Scan {
  std::int64_t computed = 0;               // sum
  std::int32_t high = 0, low = INT32_MAX;  // of computed
  std::int32_t signs = 0;                  // negative when any count is
  std::int32_t differs = 0;                // not 0 when a request schedules other than the first
};
Scan scan(const std::int32_t* scheduled, const std::int32_t* computed, std::size_t size) noexcept;

// Sum of min(value, cap).
std::int64_t capped(const std::int32_t* values, std::size_t size, std::int32_t cap) noexcept;

// How decode-context sharding divides a context of t tokens: t/period whole stripes, and what is left up to a
// stripe. The quotient is a multiplication: exact for every t below 2^31.
struct Shards {
  std::uint32_t reciprocal, shift, period, stripe;

  Shards(std::int32_t dcp, std::int32_t interleave) noexcept;
  static bool holds(std::int32_t dcp, std::int32_t interleave) noexcept;  // the period fits
  std::uint32_t of(std::uint32_t tokens) const noexcept {
    const auto whole = static_cast<std::uint32_t>((std::uint64_t{tokens} * reciprocal) >> shift);
    const std::uint32_t left = tokens - whole * period;
    return whole * stripe + (left < stripe ? left : stripe);
  }
};
// Sum of the shard of min(value + shift, cap), value + shift at least 1 and below 2^31.
std::int64_t sharded(const std::int32_t* values, std::size_t size, std::int32_t shift, std::int32_t cap,
                     const Shards& shards) noexcept;

}  // namespace steppe::sums
