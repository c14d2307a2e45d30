// Many batches in one call: compressed rows, as a simulator or a table keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "steppe/kernel.hpp"

namespace steppe {

// A setting of every batch: one value for all of them, or one each.
struct Setting {
  std::span<const std::int32_t> values;
  std::int32_t all = 0;  // where `values` is empty

  std::int32_t operator[](std::size_t batch) const noexcept { return values.empty() ? all : values[batch]; }
};

// Batch i holds requests offsets[i] to offsets[i + 1] - 1 of the two arrays.
struct Batches {
  std::span<const std::int64_t> offsets;  // one more than there are batches, ascending, within the arrays
  std::span<const std::int32_t> scheduled, computed;
  Setting decode_threshold{{}, 1}, sm_budget, pad_tokens, group_tokens;

  std::size_t size() const noexcept { return offsets.empty() ? 0 : offsets.size() - 1; }
  // nullptr, or what is wrong with offsets, lengths or settings; pricing reads nothing beyond valid batches.
  const char* objection() const noexcept;
};

struct BulkStatus {
  Status status = Status::ok;
  std::size_t batch = 0;  // the first that failed
};

// Prices valid batches into `out`, one entry each, on up to `threads` threads (the caller's is one of them).
// Bit for bit what step_time gives. On failure the entries before the failing batch are written, those after
// it may be.
BulkStatus step_times(const Kernel& kernel, const Batches& batches, std::span<Estimate> out,
                      unsigned threads = 1);

}  // namespace steppe
