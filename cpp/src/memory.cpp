#include "steppe/memory.hpp"

#include <algorithm>
#include <limits>

#include "caches_checked.hpp"

namespace steppe {

std::int64_t estimated_max_model_len(const CachePool& pool, std::size_t stage, std::int64_t available_bytes) {
  if (stage >= pool.bytes_per_block().size()) throw CacheError("no such pipeline stage");
  if (available_bytes <= 0) return 0;
  const std::int64_t blocks = available_bytes / pool.bytes_per_block()[stage];
  const auto fits = [&](std::int64_t length) { return pool.startup_blocks(length) <= blocks; };
  if (!fits(1)) return 0;
  std::int64_t low = 1;
  std::int64_t high = pool.limits().max_model_len;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

CacheCapacity cache_capacity(const CachePool& pool, std::span<const std::int64_t> available_bytes) {
  const auto& bytes_per_block = pool.bytes_per_block();
  if (available_bytes.size() != bytes_per_block.size()) {
    throw CacheError("one byte budget a pipeline stage is needed");
  }
  CacheCapacity out;
  out.startup_blocks = pool.startup_blocks();
  out.num_blocks = std::numeric_limits<std::int64_t>::max();
  out.auto_fit_max_len = pool.limits().max_model_len;
  for (std::size_t stage = 0; stage < available_bytes.size(); ++stage) {
    const std::int64_t budget = std::max<std::int64_t>(0, available_bytes[stage]);
    const std::int64_t blocks = budget / bytes_per_block[stage];
    out.num_blocks = std::min(out.num_blocks, blocks);
    // The null block is held back for the check and for lengths.
    const std::int64_t usable = budget - std::min(budget, bytes_per_block[stage]);
    const std::int64_t longest = estimated_max_model_len(pool, stage, usable);
    out.auto_fit_max_len = std::min(out.auto_fit_max_len, longest);
    const bool stage_fits = usable > 0 && out.startup_blocks <= usable / bytes_per_block[stage];
    if (!stage_fits && out.failing_stage < 0) {
      out.failing_stage = static_cast<std::int64_t>(stage);
      out.no_memory = usable <= 0;
      out.estimated_max_len = longest;
    }
  }
  out.fits = out.failing_stage < 0;
  out.startup_bytes =
      pool.bytes(out.startup_blocks, out.fits ? 0 : static_cast<std::size_t>(out.failing_stage));
  out.usable_blocks = std::max<std::int64_t>(0, out.num_blocks - 1);
  if (out.startup_blocks > 0) {
    out.max_concurrency = static_cast<double>(out.num_blocks) / static_cast<double>(out.startup_blocks);
    const double tokens = out.max_concurrency * static_cast<double>(pool.limits().max_model_len);
    if (tokens >= 9.2e18) detail::overflow();
    out.capacity_tokens = static_cast<std::int64_t>(tokens);
  }
  return out;
}

}  // namespace steppe
