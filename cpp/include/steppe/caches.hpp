// KV-cache blocks of one request, sized the way the engine sizes them.
//
// Layers form groups; a block id belongs to one group at a time but always costs the widest group's bytes,
// because all groups lie over one allocation. Three different block counts exist for a request and all three
// are here:
//   start-up   what "one longest request must fit" charges
//   vllm/v1/kv_cache_interface.py:578-583,840-877,1083-1094 admission  what the gate asks for before a
//   waiting request starts  vllm/v1/core/single_type_kv_cache_manager.py:178-268 held       what a running
//   request owns right after a step's slots  vllm/v1/core/kv_cache_manager.py:538-596
// Tokens are tokens of one request, sizes bytes of one rank. Nothing here allocates after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace steppe {

// A cache description, a step or a token count that cannot be, or a size beyond 64 bits.
class CacheError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// How blocks of a group come and go. Geometry is not here: it is in the group's bytes.
enum class CacheKind : std::uint8_t {
  full,              // every token keeps its slot: full attention, latent, index keys, compressed caches
  window,            // sliding window of `span` tokens
  chunked,           // chunked local attention, chunks of `span` tokens
  state_none,        // recurrent state, no prefix caching: one state a request
  state_align,       // recurrent state kept at block boundaries
  state_all,         // a recurrent state for every block of the sequence
  ring,              // one block a request for its whole life
  cross,             // encoder-decoder attention: blocks of the encoder's output
  reference_window,  // the prompt stays, generated tokens slide through a window of `span`
};

struct CacheGroup {
  CacheKind kind = CacheKind::full;
  std::int64_t block_size = 16;  // tokens a block on one shard; the ring's capacity for `ring`
  std::int64_t shards = 1;       // decode-context ranks the token positions are dealt to
  std::int64_t span = 0;         // window or chunk, tokens
  std::int64_t speculative = 0;  // spare states for drafted tokens
  std::int64_t checkpoint = 0;   // states reserved for a prefill checkpoint at start-up (align only)

  friend bool operator==(const CacheGroup&, const CacheGroup&) = default;
};

struct CacheLimits {
  std::int64_t max_model_len = 0;         // tokens
  std::int64_t max_in_flight_tokens = 0;  // scheduled and not yet settled: batches in flight x tokens a batch
  std::int64_t extra_retained_tokens = 0;  // kept below a window for multi-module MTP
  std::int64_t lookahead_tokens = 0;       // slots a drafter writes past the scheduled tokens
  std::int64_t max_encoder_tokens = 0;     // what start-up reserves for cross attention
};

// One step of one request. `computed` is before the step and counts tokens still in flight.
struct CacheStep {
  std::int64_t computed = 0;
  std::int64_t scheduled = 0;
  std::int64_t in_flight = 0;
  std::int64_t prompt = 0;          // for reference_window
  std::int64_t encoder_tokens = 0;  // for cross
};

// Tokens scheduled and not settled at most: batches in flight x tokens a batch. Batches in flight are pp
// under synchronous scheduling, pp + 1 under asynchronous scheduling; see the definition for the older
// runner.
std::int64_t max_in_flight_tokens(std::int64_t pipeline_stages, bool async_scheduling,
                                  std::int64_t max_num_batched_tokens);

// Blocks the gate asks for at most: windows, chunks; no cap (INT64_MAX) elsewhere.
std::int64_t admission_cap(const CacheGroup& group, const CacheLimits& limits);

// Blocks one request of `max_model_len` tokens is charged at start-up.
std::int64_t startup_blocks(const CacheGroup& group, const CacheLimits& limits, std::int64_t max_model_len);

// Blocks the admission gate asks for, a request of `tokens` known tokens, no prefix hit.
std::int64_t admission_blocks(const CacheGroup& group, const CacheLimits& limits, std::int64_t tokens,
                              std::int64_t encoder_tokens = 0);

// Planning figure: blocks charged to a request with `tokens` computed tokens, between steps. See
// CachePool::bounded_blocks for where it departs from what is held.
std::int64_t planned_blocks(const CacheGroup& group, std::int64_t tokens);

// Blocks held right after the slots of one step are given out. `slots` is the largest min(computed +
// scheduled + lookahead, max_model_len) so far, since blocks given for a draft are kept; `ends` are the end
// positions of the request's steps in flight, oldest first (only state_align reads them).
std::int64_t held_blocks(const CacheGroup& group, const CacheLimits& limits, const CacheStep& step,
                         std::int64_t slots, std::span<const std::int64_t> ends);

// Groups over one allocation, on each pipeline stage. Immutable; safe from many threads.
class CachePool {
 public:
  // `bytes_per_block[i]`: the widest group's bytes on stage i. Throws std::invalid_argument on a value out of
  // range.
  CachePool(std::vector<CacheGroup> groups, std::vector<std::int64_t> bytes_per_block, CacheLimits limits);

  const std::vector<CacheGroup>& groups() const noexcept { return groups_; }
  const std::vector<std::int64_t>& bytes_per_block() const noexcept { return bytes_per_block_; }
  const CacheLimits& limits() const noexcept { return limits_; }

  // Blocks over all groups. Token counts <= 0 are 0 blocks; above max_model_len CacheError.
  std::int64_t startup_blocks() const { return startup_blocks(limits_.max_model_len); }
  std::int64_t startup_blocks(std::int64_t max_model_len) const;
  std::int64_t admission_blocks(std::int64_t tokens, std::int64_t encoder_tokens = 0) const;
  std::int64_t growing_blocks(std::int64_t tokens) const;  // full, latent, index, recurrent in mode all
  std::int64_t bounded_blocks(std::int64_t tokens) const;  // window, chunked
  std::int64_t constant_blocks() const noexcept { return constant_; }  // recurrent in none and align, rings

  // One step with no memory of earlier ones: exact when at most one earlier step is in flight and no draft
  // slots were kept; use RequestBlocks to follow a request exactly.
  std::int64_t held_blocks(const CacheStep& step) const;

  // blocks x bytes of a block on `stage`; throws CacheError rather than wrap.
  std::int64_t bytes(std::int64_t blocks, std::size_t stage = 0) const;

 private:
  struct Class {  // groups that count alike, so a sum visits each kind once
    CacheGroup group;
    std::int64_t count;
  };
  void check_tokens(std::int64_t tokens) const;

  std::vector<CacheGroup> groups_;
  std::vector<Class> classes_;
  std::vector<std::int64_t> bytes_per_block_;
  CacheLimits limits_;
  std::int64_t constant_ = 0;
};

// The blocks of one running request, step by step. Keeps what the engine keeps: slots given for drafts, and
// the ends of the steps in flight. Holds no pool; a few words, no allocation.
class RequestBlocks {
 public:
  explicit RequestBlocks(std::int64_t prompt = 0, std::int64_t encoder_tokens = 0) noexcept
      : prompt_(prompt), encoder_tokens_(encoder_tokens) {}

  // Take one scheduled step. `in_flight`: this request's tokens of earlier steps not yet settled.
  void schedule(const CachePool& pool, std::int64_t computed, std::int64_t scheduled, std::int64_t in_flight);

  std::int64_t held(const CachePool& pool, std::size_t group) const;
  std::int64_t held(const CachePool& pool) const;

 private:
  static constexpr std::size_t kMaxDepth =
      32;  // steps of one request in flight; the engine holds pp + 1 batches

  std::int64_t prompt_;
  std::int64_t encoder_tokens_;
  CacheStep step_{};  // the latest
  std::int64_t slots_ = 0;
  std::int64_t ends_[kMaxDepth] = {};
  std::int64_t sizes_[kMaxDepth] = {};
  std::size_t depth_ = 0;  // entries in ends_, the latest step included
  bool scheduled_once_ = false;
};

}  // namespace steppe
