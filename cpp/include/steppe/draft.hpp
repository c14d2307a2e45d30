// Draft passes: which rows of a step a drafter runs, and the features its laws read.
//
// Pass 0 of a plan is the target's forward. Every other pass is charged after it, on features of its own,
// derived from the batch and from the target's features.
#pragma once

#include <cstdint>
#include <span>

#include "steppe/batch.hpp"
#include "steppe/features.hpp"

namespace steppe {

// Which requests and rows a pass runs, how often, and under which CUDA graphs.
struct Pass {
  enum class Rows : std::uint8_t {
    batch,            // the rows of the target's forward, rejected ones kept
    one_a_request,    // the token drafted last
    block_a_request,  // `block` query rows, the anchor and masks
    context,          // the rows of the target's forward; under a graph at least `block` a captured request
  };
  enum class Graph : std::uint8_t {
    eager,   // never captured
    target,  // captured where the target's forward is
    own,     // captured up to the drafter's own ceiling, in its own rows
  };
  Rows rows = Rows::batch;
  Graph graph = Graph::eager;
  std::int32_t block = 1;      // rows a request (block_a_request, context)
  std::int32_t extra = 0;      // rows added to each request (batch)
  std::int32_t head_rows = 0;  // rows a request whose logits are computed
  std::int32_t count = 1;      // times the pass runs
  std::int32_t ahead =
      0;               // tokens the context has grown by when it first runs, `block` or the one row included
  bool grows = false;  // each later run sees a context one token longer
  std::int32_t width = 1;         // rows a request of the drafter's own graphs
  std::int32_t ceiling = 0;       // rows of them at most
  std::int32_t max_requests = 0;  // requests a full graph carries at most; 0 = no full graphs
  std::int32_t max_rows = 0;      // rows a step holds at most (context)
};

// Why `pass` cannot be run; nullptr where it can.
const char* objection(const Pass& pass) noexcept;

// Requests a drafter's own graph runs for `requests`: the smallest of `sizes` (captured row counts,
// ascending) rounded up to whole requests that holds them. 0 where none is large enough: the pass runs
// eagerly, at its own size. (vllm/v1/worker/gpu/cudagraph_utils.py:297-386, 499-529)
std::int64_t captured_requests(std::int64_t requests, const Pass& pass,
                               std::span<const std::int32_t> sizes) noexcept;

// Features of run `run` (0 ... count - 1) of a draft pass over a batch whose target features are `target`.
void draft_features(const Batch& batch, const FeaturePlan& plan, const Pass& pass, std::int32_t run,
                    const Features& target, Features& out) noexcept;

}  // namespace steppe
