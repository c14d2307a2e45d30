// Integer arithmetic that refuses to wrap, and the bounds a cache description must keep.
#pragma once

#include <cstdint>

#include "steppe/caches.hpp"

namespace steppe::detail {

// Every length and count is far below 2^53, so products of two of them are the only place that can overflow.
inline constexpr std::int64_t kLargest = std::int64_t{1} << 53;

[[noreturn]] inline void overflow() { throw CacheError("a size does not fit 64 bits"); }

inline std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) overflow();
  return product;
}

inline std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) overflow();
  return sum;
}

// Rounded up, for a >= 0 and b >= 1; 32-bit division where it is exact because it is several times faster.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  if (((static_cast<std::uint64_t>(a) | static_cast<std::uint64_t>(b)) >> 31) == 0) {
    const auto x = static_cast<std::uint32_t>(a);
    const auto y = static_cast<std::uint32_t>(b);
    return static_cast<std::int64_t>((x + y - 1) / y);
  }
  return a / b + (a % b != 0 ? 1 : 0);
}

inline void require(bool holds, const char* what) {
  if (!holds) throw CacheError(what);
}

inline void check(const CacheLimits& limits) {
  require(limits.max_model_len >= 1 && limits.max_model_len <= kLargest,
          "max_model_len must be in [1, 2^53]");
  require(limits.max_in_flight_tokens >= 0 && limits.max_in_flight_tokens <= kLargest,
          "max_in_flight_tokens must be in [0, 2^53]");
  require(limits.extra_retained_tokens >= 0 && limits.extra_retained_tokens <= kLargest,
          "extra_retained_tokens must be in [0, 2^53]");
  require(limits.lookahead_tokens >= 0 && limits.lookahead_tokens <= kLargest,
          "lookahead_tokens must be in [0, 2^53]");
  require(limits.max_encoder_tokens >= 0 && limits.max_encoder_tokens <= kLargest,
          "max_encoder_tokens must be in [0, 2^53]");
}

inline void check(const CacheGroup& group) {
  require(group.block_size >= 1 && group.block_size <= kLargest, "block_size must be in [1, 2^53]");
  require(group.shards >= 1 && group.shards <= (1 << 20), "shards must be in [1, 2^20]");
  const bool state = group.kind == CacheKind::state_none || group.kind == CacheKind::state_align ||
                     group.kind == CacheKind::state_all;
  require(!state || group.shards == 1, "a recurrent state is never sharded: shards must be 1");
  require(group.block_size <= kLargest / group.shards, "block_size x shards must be at most 2^53");
  const bool spans = group.kind == CacheKind::window || group.kind == CacheKind::chunked ||
                     group.kind == CacheKind::reference_window;
  require(!spans || (group.span >= 1 && group.span <= kLargest),
          "a window or chunk must be in [1, 2^53] tokens");
  require(group.speculative >= 0 && group.speculative <= (1 << 20),
          "speculative blocks must be in [0, 2^20]");
  require(group.checkpoint >= 0 && group.checkpoint <= (1 << 20), "checkpoint blocks must be in [0, 2^20]");
}

// The end position of a valid step.
inline std::int64_t check(const CacheStep& step, const CacheLimits& limits) {
  require(step.computed >= 0 && step.scheduled >= 0 && step.in_flight >= 0 && step.in_flight <= step.computed,
          "a step needs computed, scheduled >= 0 and 0 <= in_flight <= computed");
  require(step.prompt >= 0 && step.prompt <= kLargest && step.encoder_tokens >= 0 &&
              step.encoder_tokens <= kLargest,
          "prompt and encoder_tokens must be in [0, 2^53]");
  if (step.computed > limits.max_model_len || step.scheduled > limits.max_model_len - step.computed) {
    throw CacheError("a step ends above max_model_len");
  }
  return step.computed + step.scheduled;
}

}  // namespace steppe::detail
