#include "steppe/bulk.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace steppe {

const char* Batches::objection() const noexcept {
  if (offsets.empty()) return "offsets must hold one entry more than there are batches";
  if (scheduled.size() != computed.size())
    return "scheduled and computed must have one entry a request: their lengths differ";
  if (offsets.front() < 0) return "offsets must not be negative";
  if (!std::is_sorted(offsets.begin(), offsets.end())) return "offsets must ascend";
  if (static_cast<std::size_t>(offsets.back()) > scheduled.size()) return "offsets reach beyond the requests";
  for (const Setting* setting : {&decode_threshold, &sm_budget, &pad_tokens, &group_tokens}) {
    if (!setting->values.empty() && setting->values.size() != size())
      return "a setting must be one value, or one a batch";
  }
  return nullptr;
}

namespace {

Batch batch_at(const Batches& all, std::size_t i) noexcept {
  const auto start = static_cast<std::size_t>(all.offsets[i]);
  const std::size_t size = static_cast<std::size_t>(all.offsets[i + 1]) - start;
  return {all.scheduled.subspan(start, size),
          all.computed.subspan(start, size),
          all.decode_threshold[i],
          all.sm_budget[i],
          all.pad_tokens[i],
          all.group_tokens[i]};
}

// What the threads of one call share: the next chunk to take, and the first batch that failed so far.
struct Work {
  const Kernel& kernel;
  const Batches& batches;
  std::span<Estimate> out;
  std::atomic<std::size_t> next{0}, failed;

  static constexpr std::size_t kChunk = 1024;

  // Chunks are taken in order, so that every batch before the first failure is priced.
  void operator()() noexcept {
    for (;;) {
      const std::size_t start = next.fetch_add(kChunk, std::memory_order_relaxed);
      if (start >= std::min(batches.size(), failed.load(std::memory_order_relaxed))) return;
      for (std::size_t i = start; i < std::min(batches.size(), start + kChunk); ++i) {
        if (kernel.step_time(batch_at(batches, i), out[i]) != Status::ok) return fail(i);
      }
    }
  }
  void fail(std::size_t batch) noexcept {
    std::size_t first = failed.load(std::memory_order_relaxed);
    while (batch < first && !failed.compare_exchange_weak(first, batch, std::memory_order_relaxed)) {
    }
  }
};

}  // namespace

BulkStatus step_times(const Kernel& kernel, const Batches& batches, std::span<Estimate> out,
                      unsigned threads) {
  Work work{kernel, batches, out, {}, batches.size()};
  const std::size_t chunks = (batches.size() + Work::kChunk - 1) / Work::kChunk;
  std::vector<std::thread> others;
  try {
    for (std::size_t i = 1; i < std::min<std::size_t>(threads, chunks); ++i)
      others.emplace_back([&work] { work(); });
  } catch (const std::exception&) {
    // Fewer threads than asked for do the same work.
  }
  work();
  for (std::thread& each : others) each.join();
  const std::size_t failed = work.failed;
  if (failed == batches.size()) return {};
  Estimate e;
  return {kernel.step_time(batch_at(batches, failed), e), failed};
}

}  // namespace steppe
