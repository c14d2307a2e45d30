// Features: the few numbers of a batch that the laws read. One pass over the requests yields all of them.
//
// A plan states which *classes* it needs (how a decode read is bounded and sharded, how a prefill's causal
// pairs are windowed and split); each class is one feature. Everything that can be counted in whole tokens
// is, so that a batch kept up to date step by step gives the same bits as one aggregated from scratch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "steppe/batch.hpp"

namespace steppe {

// Features every plan has, in this order; classes follow.
enum Feature : std::uint16_t {
  kTokens,  // rows of the target's forward on this rank: scheduled + pad - rows another prefill-context rank
            // owns
  kPaddedTokens,   // the same, padded to the captured size when a CUDA graph runs the step (refined laws)
  kScheduled,      // tokens scheduled, before any split or pad
  kRequests,       // requests that run at least one token
  kDecodes,        // ... of which decodes
  kDecodeTokens,   // tokens the decodes schedule
  kPrefills,       // requests that schedule more than decode_threshold
  kPrefillTokens,  // tokens of them this rank runs
  kContextRows,    // all rows when any request has context, else 0
  kUnpadded,       // 1 when no captured size holds the step (it runs at its own size)
  kMaxContext,     // longest decode context, this step's tokens included
  kMaxChunk,       // longest prefill chunk
  kSampledRows,    // rows the head sees: decode tokens and the last row of each prefill
  kGroupRows,  // rows the expert group runs: the batch's own figure, else this rank's times the ranks that
               // share it
  kFixedFeatures,
};

inline constexpr int kMaxFeatures = 96;

// Decode read of one layer class, tokens a layer reads for all decode requests.
// Per request: min(ctx, limit) + max(0, ctx - limit) / tail_ratio, over `divide`.
struct ReadClass {
  std::int64_t limit = INT64_MAX;  // window or top-k; INT64_MAX = the whole context
  std::int64_t tail_ratio = 0;     // compressed states beyond the limit; 0 = nothing is read there
  std::int64_t divide = 1;         // a pooled scorer reads one state per this many tokens
  std::int32_t dcp = 1;            // decode-context shards
  std::int32_t interleave = 1;     // stripe of the sharding, tokens
  bool shard_sum = false;          // shard the summed read once (index scorers) instead of each request's
};

// Which figure of the prefills a class holds.
enum class PairFigure : std::uint8_t {
  pairs,    // causal (query, key) pairs: s*c + s^2/2 in full, the window's band otherwise
  visible,  // longest visible context: c + s, or min(c + s, window + slack)
  context,  // keys of chunks that continue a cached prefix: sum of visible where c > 0
  chunked,  // rows with each chunk rounded up to `slack` at least: sum of max(s, slack)
  ranked,   // what ranking pooled index keys costs queries that see `select` to `window` of them, see
            // ranked_rows
};

struct PairClass {
  PairFigure figure = PairFigure::pairs;
  std::int64_t window = 0;  // 0 = full attention
  std::int64_t slack = 0;   // keys a window kernel reads beyond the window
  std::int64_t select = 0;  // keys selected a query (sparse attention); 0 = all
  std::int64_t ratio = 1;   // keys are pooled by this ratio before the pairs are counted
};

// How the engine rounds a step up to a captured size, and where a prefill is split over ranks.
struct FeaturePlan {
  std::vector<ReadClass> reads;             // features kFixedFeatures ...
  std::vector<PairClass> pairs;             // ... then these
  std::int32_t pcp = 1;                     // prefill-context parallel ranks
  bool replicate_short_chunks = false;      // pcp with dcp: chunks too short to split run whole on every rank
  bool pad_to_capture = false;              // refined laws price the padded size
  std::int32_t capture_ceiling = 0;         // largest captured token count
  std::int32_t uniform_width = 1;           // tokens of a uniform decode row: 1 + speculative tokens
  std::int64_t max_model_len = 0;           // 0 = not stated
  std::int32_t funnel = 1;                  // data-parallel ranks whose rows reach this rank's experts
  std::vector<std::int32_t> capture_sizes;  // token counts graphs are captured at, ascending

  int count() const noexcept {
    return kFixedFeatures + static_cast<int>(reads.size()) + static_cast<int>(pairs.size());
  }
};

struct Features {
  std::array<double, kMaxFeatures> value;
  bool uniform = false;  // every request that runs schedules exactly the uniform width

  double operator[](int feature) const noexcept { return value[static_cast<std::size_t>(feature)]; }
};

// Tokens the slowest decode-context rank reads of a context of `tokens` (at least one where there are any).
std::int64_t shard_tokens(std::int64_t tokens, std::int32_t dcp, std::int32_t interleave) noexcept;

// The captured size that holds `tokens` rows; 0 where none does and the step runs at its own size.
std::int64_t captured_size(std::int64_t tokens, std::span<const std::int32_t> sizes) noexcept;

// Causal pairs of `s` new tokens on `c` cached ones under a window (0 = full).
double causal_pairs(std::int64_t s, std::int64_t c, std::int64_t window) noexcept;

// Queries of a chunk that rank their pooled index keys (more than top-k of them, no more than a linear kernel
// takes over at) weighed by the square of how many they rank: (clip(c + s)^3 - clip(c)^3) / 48, clip to [low,
// high].
double ranked_rows(std::int64_t s, std::int64_t c, std::int64_t low, std::int64_t high) noexcept;

// One pass over the batch. `out` needs no initialisation.
Status aggregate(const Batch& batch, const FeaturePlan& plan, Features& out) noexcept;

}  // namespace steppe
