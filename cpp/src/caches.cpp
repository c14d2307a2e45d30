#include "steppe/caches.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "caches_checked.hpp"

namespace steppe {

using detail::add;
using detail::ceil_div;
using detail::multiply;

std::int64_t max_in_flight_tokens(std::int64_t pipeline_stages, bool async_scheduling,
                                  std::int64_t max_num_batched_tokens) {
  // COVERAGE LIMIT: window and chunked admission is sized for pp + 1 batches in flight whenever scheduling is
  // asynchronous, which is what the default model runner holds. The older runner holds pp batches once pp > 1
  // (vllm/config/vllm.py:591-602), so a window group is charged up to one token budget too much under it.
  if (pipeline_stages < 1 || max_num_batched_tokens < 0) {
    throw CacheError("pipeline_stages must be >= 1 and max_num_batched_tokens >= 0");
  }
  return multiply(add(pipeline_stages, async_scheduling ? 1 : 0), max_num_batched_tokens);
}

std::int64_t admission_cap(const CacheGroup& group, const CacheLimits& limits) {
  if (group.kind == CacheKind::window) {
    const std::int64_t live =
        add(add(group.span - 1, limits.extra_retained_tokens), limits.max_in_flight_tokens);
    // One more block: the window may begin inside one.
    return ceil_div(std::min(live, limits.max_model_len), group.block_size) + 1;
  }
  if (group.kind == CacheKind::chunked) {
    const std::int64_t live = add(group.span, limits.max_in_flight_tokens);
    return ceil_div(std::min(live, limits.max_model_len), group.block_size);
  }
  return std::numeric_limits<std::int64_t>::max();
}

std::int64_t startup_blocks(const CacheGroup& group, const CacheLimits& limits, std::int64_t max_model_len) {
  switch (group.kind) {
    case CacheKind::full:
    case CacheKind::reference_window:
      return ceil_div(ceil_div(max_model_len, group.shards), group.block_size);
    case CacheKind::window:
    case CacheKind::chunked: {
      CacheLimits shorter = limits;
      shorter.max_model_len = max_model_len;
      return admission_cap(group, shorter);
    }
    case CacheKind::state_none:
      return 1 + group.speculative;
    case CacheKind::state_align:
      return 2 + group.speculative + group.checkpoint;
    case CacheKind::state_all:
      return ceil_div(max_model_len, group.block_size) + group.speculative;
    case CacheKind::ring:
      return 1;
    case CacheKind::cross:
      return ceil_div(limits.max_encoder_tokens, group.block_size);
  }
  return 0;
}

std::int64_t admission_blocks(const CacheGroup& group, const CacheLimits& limits, std::int64_t tokens,
                              std::int64_t encoder_tokens) {
  const std::int64_t stride = group.block_size * group.shards;
  switch (group.kind) {
    case CacheKind::full:
    case CacheKind::reference_window:
      return ceil_div(tokens, stride);
    case CacheKind::window:
    case CacheKind::chunked:
      return std::min(ceil_div(tokens, stride), admission_cap(group, limits));
    case CacheKind::state_none:
      return 1 + group.speculative;
    case CacheKind::state_align:
      return std::min(ceil_div(tokens, group.block_size), std::int64_t{1}) + group.speculative;
    case CacheKind::state_all:
      return ceil_div(tokens, group.block_size) + group.speculative;
    case CacheKind::ring:
      return 1;
    case CacheKind::cross:
      return ceil_div(encoder_tokens, stride);
  }
  return 0;
}

std::int64_t planned_blocks(const CacheGroup& group, std::int64_t tokens) {
  if (tokens <= 0) return 0;
  switch (group.kind) {
    case CacheKind::full:
      return ceil_div(tokens, group.block_size * group.shards);
    case CacheKind::window:
      return ceil_div(std::min(tokens, group.span), group.block_size) + 1;
    case CacheKind::chunked:
      return ceil_div(std::min(tokens, group.span), group.block_size);
    case CacheKind::state_none:
      return 1 + group.speculative;
    case CacheKind::state_align:
      return 2 + group.speculative;
    case CacheKind::state_all:
      return ceil_div(tokens, group.block_size) + group.speculative;
    case CacheKind::ring:
      return 1;
    case CacheKind::reference_window:
      return ceil_div(tokens,
                      group.block_size * group.shards);  // the prompt is not known here: an upper bound
    case CacheKind::cross:
      return 0;  // follows the encoder, not the decoder's tokens
  }
  return 0;
}

namespace {

// Distinct columns ceil(end / block) - 1 among the last settled token, the steps in flight and this step. A
// running state moves to a new column only when a step's end enters a new block, so few positions can differ.
std::int64_t state_columns(std::int64_t block, std::int64_t processed, std::int64_t end,
                           std::span<const std::int64_t> ends) {
  const std::int64_t own = ceil_div(end, block);
  std::int64_t columns = 1;
  if (processed > 0) {
    const std::int64_t column = ceil_div(processed, block);
    bool seen = column == own;
    for (const std::int64_t e : ends) seen = seen || ceil_div(e, block) == column;
    columns += seen ? 0 : 1;
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::int64_t column = ceil_div(ends[i], block);
    bool seen = column == own;
    for (std::size_t j = 0; j < i; ++j) seen = seen || ceil_div(ends[j], block) == column;
    columns += seen ? 0 : 1;
  }
  return columns;
}

}  // namespace

std::int64_t held_blocks(const CacheGroup& group, const CacheLimits& limits, const CacheStep& step,
                         std::int64_t slots, std::span<const std::int64_t> ends) {
  const std::int64_t processed = std::max<std::int64_t>(0, step.computed - step.in_flight);
  const std::int64_t stride = group.block_size * group.shards;
  const std::int64_t given = ceil_div(slots, stride);
  switch (group.kind) {
    case CacheKind::full:
      return given;
    case CacheKind::window: {
      const std::int64_t below = processed - group.span + 1 - limits.extra_retained_tokens;
      return given - std::max<std::int64_t>(0, below) / stride;
    }
    case CacheKind::chunked:
      return given - processed / group.span * group.span / stride;
    case CacheKind::state_none:
      return 1 + group.speculative;
    case CacheKind::state_align:
      return group.speculative +
             state_columns(group.block_size, processed, step.computed + step.scheduled, ends);
    case CacheKind::state_all:
      return given + group.speculative - std::max<std::int64_t>(0, processed - 1) / group.block_size;
    case CacheKind::ring:
      return 1;
    case CacheKind::cross:
      return ceil_div(step.encoder_tokens, stride);
    case CacheKind::reference_window: {
      const std::int64_t first = ceil_div(step.prompt, stride);
      const std::int64_t last = std::min(std::max(step.prompt, processed - group.span) / stride, given);
      return given - std::max<std::int64_t>(0, last - first);
    }
  }
  return 0;
}

CachePool::CachePool(std::vector<CacheGroup> groups, std::vector<std::int64_t> bytes_per_block,
                     CacheLimits limits)
    : groups_(std::move(groups)), bytes_per_block_(std::move(bytes_per_block)), limits_(limits) {
  detail::check(limits_);
  if (bytes_per_block_.empty()) throw CacheError("a cache pool needs one bytes_per_block a stage");
  for (const std::int64_t bytes : bytes_per_block_) {
    if (bytes < 1) throw CacheError("bytes_per_block must be >= 1");
  }
  for (const CacheGroup& group : groups_) {
    detail::check(group);
    const auto same =
        std::find_if(classes_.begin(), classes_.end(), [&](const Class& c) { return c.group == group; });
    if (same == classes_.end()) {
      classes_.push_back({group, 1});
    } else {
      ++same->count;
    }
    const bool constant = group.kind == CacheKind::state_none || group.kind == CacheKind::state_align ||
                          group.kind == CacheKind::ring;
    if (constant) constant_ = add(constant_, planned_blocks(group, 1));
  }
}

void CachePool::check_tokens(std::int64_t tokens) const {
  if (tokens > limits_.max_model_len) {
    throw CacheError("token count " + std::to_string(tokens) + " is above max_model_len " +
                     std::to_string(limits_.max_model_len));
  }
}

std::int64_t CachePool::startup_blocks(std::int64_t max_model_len) const {
  if (max_model_len < 1) throw CacheError("max_model_len must be >= 1");
  std::int64_t total = 0;
  for (const Class& c : classes_) {
    total = add(total, multiply(c.count, steppe::startup_blocks(c.group, limits_, max_model_len)));
  }
  return total;
}

std::int64_t CachePool::admission_blocks(std::int64_t tokens, std::int64_t encoder_tokens) const {
  check_tokens(tokens);
  if (encoder_tokens < 0) throw CacheError("encoder_tokens must be >= 0");
  if (tokens <= 0) return 0;
  std::int64_t total = 0;
  for (const Class& c : classes_) {
    total = add(total, multiply(c.count, steppe::admission_blocks(c.group, limits_, tokens, encoder_tokens)));
  }
  return total;
}

std::int64_t CachePool::growing_blocks(std::int64_t tokens) const {
  check_tokens(tokens);
  std::int64_t total = 0;
  for (const Class& c : classes_) {
    const bool grows = c.group.kind == CacheKind::full || c.group.kind == CacheKind::state_all ||
                       c.group.kind == CacheKind::reference_window;
    if (grows) total = add(total, multiply(c.count, planned_blocks(c.group, tokens)));
  }
  return total;
}

std::int64_t CachePool::bounded_blocks(std::int64_t tokens) const {
  check_tokens(tokens);
  std::int64_t total = 0;
  for (const Class& c : classes_) {
    const bool bounded = c.group.kind == CacheKind::window || c.group.kind == CacheKind::chunked;
    if (bounded) total = add(total, multiply(c.count, planned_blocks(c.group, tokens)));
  }
  return total;
}

std::int64_t CachePool::held_blocks(const CacheStep& step) const {
  const std::int64_t end = detail::check(step, limits_);
  const std::int64_t slots = std::min(add(end, limits_.lookahead_tokens), limits_.max_model_len);
  const std::span<const std::int64_t> ends(&step.computed, step.in_flight > 0 ? 1 : 0);
  std::int64_t total = 0;
  for (const Class& c : classes_) {
    total = add(total, multiply(c.count, steppe::held_blocks(c.group, limits_, step, slots, ends)));
  }
  return total;
}

std::int64_t CachePool::bytes(std::int64_t blocks, std::size_t stage) const {
  if (stage >= bytes_per_block_.size()) throw CacheError("no such pipeline stage");
  return multiply(blocks, bytes_per_block_[stage]);
}

void RequestBlocks::schedule(const CachePool& pool, std::int64_t computed, std::int64_t scheduled,
                             std::int64_t in_flight) {
  const CacheLimits& limits = pool.limits();
  const CacheStep step{computed, scheduled, in_flight, prompt_, encoder_tokens_};
  const std::int64_t end = detail::check(step, limits);

  // The newest earlier steps whose tokens make up `in_flight` are the ones not settled.
  std::size_t unsettled = 0;
  for (std::int64_t tokens = 0; tokens < in_flight && unsettled < depth_; ++unsettled) {
    tokens += sizes_[depth_ - 1 - unsettled];
  }
  if (unsettled == kMaxDepth) throw CacheError("too many steps of one request in flight");
  std::copy(ends_ + (depth_ - unsettled), ends_ + depth_, ends_);
  std::copy(sizes_ + (depth_ - unsettled), sizes_ + depth_, sizes_);
  depth_ = unsettled;
  ends_[depth_] = end;
  sizes_[depth_] = scheduled;
  ++depth_;

  step_ = step;
  slots_ = std::max(slots_, std::min(add(end, limits.lookahead_tokens), limits.max_model_len));
  scheduled_once_ = true;
}

std::int64_t RequestBlocks::held(const CachePool& pool, std::size_t group) const {
  if (group >= pool.groups().size()) throw CacheError("no such cache group");
  if (!scheduled_once_) return 0;
  return held_blocks(pool.groups()[group], pool.limits(), step_, slots_, {ends_, depth_ - 1});
}

std::int64_t RequestBlocks::held(const CachePool& pool) const {
  std::int64_t total = 0;
  for (std::size_t g = 0; g < pool.groups().size(); ++g) total = add(total, held(pool, g));
  return total;
}

}  // namespace steppe
