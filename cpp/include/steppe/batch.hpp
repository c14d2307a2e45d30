// A batch: what one forward pass runs, one entry a request, as the scheduler sees it.
#pragma once

#include <cstdint>
#include <span>

namespace steppe {

// Why a batch cannot be priced. The pricing path returns one of these instead of throwing.
enum class Status : std::uint8_t {
  ok,
  length_mismatch,    // scheduled and computed differ in length
  negative_tokens,    // a request schedules or has computed a negative number of tokens
  negative_setting,   // a threshold, budget, pad or group size is negative
  beyond_max_len,     // computed + scheduled exceeds the deployment's max_model_len
  too_many_tokens,    // more tokens in the step, or in one context, than 2^31 - 1
  duplicate_request,  // the running batch has the request already
  unknown_request,    // the running batch does not have the request
};

const char* describe(Status status) noexcept;

struct Batch {
  std::span<const std::int32_t> scheduled;  // tokens each request runs this step
  std::span<const std::int32_t> computed;   // tokens each request had computed before this step
  std::int32_t decode_threshold = 1;        // a request is a prefill when it schedules more than this
  std::int32_t sm_budget = 0;               // SMs left to the step; 0 = all of them
  std::int32_t pad_tokens = 0;              // rows the data-parallel lockstep adds on this rank
  std::int32_t group_tokens = 0;  // rows of all data-parallel ranks together; 0 = each runs as many as this
};

}  // namespace steppe
