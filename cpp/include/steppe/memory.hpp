// From a byte budget to blocks: the engine's start-up check, capacity and estimated lengths.
#pragma once

#include <cstdint>
#include <span>

#include "steppe/caches.hpp"

namespace steppe {

struct CacheCapacity {
  bool fits = false;                   // the start-up check on every stage
  std::int64_t failing_stage = -1;     // first stage that fails, -1 when all fit
  bool no_memory = false;              // not even the null block is left on that stage
  std::int64_t num_blocks = 0;         // common to all stages, the null block included
  std::int64_t usable_blocks = 0;      // without the null block
  std::int64_t startup_blocks = 0;     // of one request of max_model_len
  std::int64_t startup_bytes = 0;      // the same on the failing stage, else on the first
  double max_concurrency = 0;          // num_blocks / startup_blocks, one IEEE division as the engine logs it
  std::int64_t capacity_tokens = 0;    // int(max_concurrency x max_model_len)
  std::int64_t estimated_max_len = 0;  // longest request the failing stage could serve; 0: not one token
  std::int64_t auto_fit_max_len = 0;   // what max_model_len = -1 would choose; 0: refused
};

// Sizes the pool from the bytes each stage has for KV. One block is held back as the null block for the check
// and for lengths, not for the count (vllm/v1/core/kv_cache_utils.py:2780-2829). Throws std::invalid_argument
// unless there is one budget a stage.
CacheCapacity cache_capacity(const CachePool& pool, std::span<const std::int64_t> available_bytes);

// Longest max_model_len whose start-up figure fits `available_bytes` on a stage; 0 when one token does not
// (vllm/v1/core/kv_cache_utils.py:2530-2572).
std::int64_t estimated_max_model_len(const CachePool& pool, std::size_t stage, std::int64_t available_bytes);

}  // namespace steppe
