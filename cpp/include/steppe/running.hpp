// A decode batch that lives from step to step. Requests come and go, every step moves all of them on; pricing
// reads sums that are kept up to date, so that a step costs neither layers nor requests, and equals pricing
// the same batch from scratch bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "steppe/kernel.hpp"

namespace steppe {

// What every step of a running batch has in common.
struct RunningSettings {
  std::int32_t width = 1;         // tokens each request schedules a step: 1 + speculative tokens
  std::int32_t sm_budget = 0;     // see Batch
  std::int32_t pad_tokens = 0;    // see Batch
  std::int32_t group_tokens = 0;  // see Batch
};

// Sums over the steps of a run.
struct RunTotal {
  std::int64_t steps = 0;  // steps priced
  std::int64_t no_overlap_ns = 0, overlap_ns = 0;
};

// For one thread at a time; the kernel may be shared, and must outlive the batch.
class RunningBatch {
 public:
  // Throws std::invalid_argument for a width below 1 or a negative setting.
  explicit RunningBatch(const Kernel& kernel, RunningSettings settings = {});
  ~RunningBatch();
  RunningBatch(RunningBatch&&) noexcept;
  RunningBatch& operator=(RunningBatch&&) noexcept;

  // A request joins with `computed` tokens, or leaves. Refused with duplicate_request, unknown_request or
  // negative_tokens, the batch unchanged.
  Status add(std::uint64_t id, std::int32_t computed);
  Status remove(std::uint64_t id) noexcept;
  // Every request has `tokens` more computed: steps of width 1, or accepted tokens of a wider one.
  Status advance(std::int64_t tokens = 1) noexcept;

  std::size_t size() const noexcept;
  // Tokens a request has computed, or -1 where it is not in the batch.
  std::int64_t computed(std::uint64_t id) const noexcept;

  // The next step as the batch stands. Neither allocates nor throws.
  Status price(Estimate& out) noexcept;
  // Prices `steps` steps, each a token further than the one before, and leaves the batch after the last.
  // `each` takes the first of them, as many as it holds. A step that cannot be priced ends the run:
  // total.steps tells how many were.
  Status price_run(std::int64_t steps, std::span<Estimate> each, RunTotal& total) noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace steppe
