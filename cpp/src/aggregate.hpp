// The counts features are made of, shared by the one-pass aggregation and the batch kept up to date step by
// step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "steppe/draft.hpp"
#include "steppe/features.hpp"

namespace steppe {

// What is counted over all requests, whichever class reads it.
struct Counts {
  std::int64_t scheduled = 0, requests = 0, decodes = 0, decode_tokens = 0;
  std::int64_t max_context = 0, max_decode_context = 0, max_chunk = 0, off_width = 0;
  std::int32_t signs = 0, any_context = 0;
  std::size_t first_prefill = SIZE_MAX, last_prefill = 0;  // where the prefills lie; none when first > last
};

// The parts a token a class counts in: reads are whole numbers of 1/unit tokens until they are sharded or
// divided.
inline std::int64_t unit_of(const ReadClass& c) noexcept {
  return std::max<std::int64_t>(1, c.tail_ratio) * c.divide;
}
inline bool sharded_each(const ReadClass& c) noexcept { return c.dcp > 1 && !c.shard_sum; }

// One request's read, in parts; and what the slowest shard reads of it, in tokens.
inline std::int64_t parts_read(std::int64_t ctx, const ReadClass& c) noexcept {
  const std::int64_t head = std::min(ctx, c.limit);
  return c.tail_ratio > 0 ? head * c.tail_ratio + (ctx - head) : head;
}
std::int64_t shard_read(std::int64_t ctx, const ReadClass& c) noexcept;

// The sum of parts_read over requests, from their contexts and the contexts up to the limit.
inline std::int64_t sum_read(const ReadClass& c, std::int64_t contexts, std::int64_t heads) noexcept {
  return c.tail_ratio > 0 ? heads * c.tail_ratio + (contexts - heads) : heads;
}

// The feature from the sum over all decodes (of shard_read where each request is sharded, else of
// parts_read).
double tokens_read(const ReadClass& c, std::int64_t sum) noexcept;

// Refuses what cannot be priced, then sets every feature but those of the prefill classes, which are 0.
Status set_features(const Counts& n, const std::int64_t* reads, std::int64_t held_back, const Batch& settings,
                    const FeaturePlan& plan, Features& out) noexcept;

// How a draft pass sees the requests: rows each, and how far their contexts have grown beyond `computed`.
struct DraftRows {
  bool whole;  // the rows of the target's forward and `rows` more; else `rows` alone
  std::int64_t rows, ahead;
  std::int64_t limit;           // a drafted position beyond the longest context is clamped to it
  std::int64_t longest_decode;  // a request that runs more rows is a prefill

  DraftRows(const Batch& settings, const FeaturePlan& plan, const Pass& pass, std::int32_t run) noexcept;
  std::int64_t scheduled(std::int64_t s) const noexcept { return whole ? s + rows : rows; }
  std::int64_t shift(std::int64_t s) const noexcept { return s + ahead + (whole ? rows : 0); }
};

struct DraftCounts {
  std::int64_t rows = 0, decodes = 0, decode_rows = 0, prefills = 0;
  std::int64_t max_context = 0, max_chunk = 0;
};

// A pass that runs the rows of the target's forward as they are reads the target's features.
inline bool runs_target_rows(const Pass& pass) noexcept {
  return pass.rows == Pass::Rows::context || (pass.rows == Pass::Rows::batch && pass.extra == 0);
}

// Sets every feature of a draft pass but the classes: `out` starts as a copy of `target`, and the counts are
// read only where the pass does not run the target's rows.
void set_draft_features(const Batch& settings, const FeaturePlan& plan, const Pass& pass,
                        const Features& target, const DraftCounts& n, Features& out) noexcept;

}  // namespace steppe
