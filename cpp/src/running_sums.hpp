// Sums over the requests of a running batch, kept up to date as it moves on.
//
// A request is its key: computed tokens less the clock, so that a step touches no request. Keys are sorted,
// longest first, so that the requests at a limit are the first so many, and a step only moves that border.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "steppe/features.hpp"

namespace steppe {

struct RunningItem {
  std::int64_t key;
  std::uint64_t id;
  friend bool operator<(const RunningItem& a, const RunningItem& b) noexcept {
    return a.key != b.key ? a.key > b.key : a.id < b.id;
  }
};
using RunningItems = std::vector<RunningItem>;

// Sum of min(computed, limit).
class CappedSum {
 public:
  explicit CappedSum(std::int64_t limit) noexcept : limit_(limit) {}

  std::int64_t limit() const noexcept { return limit_; }
  void count(std::int64_t key, std::int64_t clock, bool joins) noexcept {
    if (key + clock >= limit_) {
      above_ += joins ? 1 : -1;
    } else {
      below_keys_ += joins ? key : -key;
    }
  }
  // After the clock moved on.
  void advance(const RunningItems& items, std::int64_t clock) noexcept {
    for (auto at = static_cast<std::size_t>(above_); at < items.size() && items[at].key + clock >= limit_;
         ++at) {
      below_keys_ -= items[at].key;
      ++above_;
    }
  }
  std::int64_t sum(std::size_t size, std::int64_t clock) const noexcept {
    const std::int64_t below = static_cast<std::int64_t>(size) - above_;
    return (above_ > 0 ? above_ * limit_ : 0) + below_keys_ + below * clock;
  }

 private:
  std::int64_t limit_;
  std::int64_t above_ = 0, below_keys_ = 0;
};

// Sum of the shards of t = min(computed + shift, cap) over decode-context ranks: t/dcp but for what is left
// over whole periods, which is counted by residue.
class ShardedSum {
 public:
  // Whether a class is sharded in a way this can follow.
  static bool follows(const ReadClass& c, std::int64_t cap) noexcept;
  ShardedSum(const ReadClass& c, std::int64_t shift, std::int64_t cap);

  void count(std::int64_t key, std::int64_t clock, bool joins) noexcept {
    if (key + clock + shift_ >= cap_) {
      above_ += joins ? 1 : -1;
    } else {
      count_below(key, clock, joins);
    }
  }
  // After the clock moved on by `tokens`.
  void advance(const RunningItems& items, std::int64_t clock, std::int64_t tokens) noexcept;
  std::int64_t sum(std::int64_t clock) const noexcept {
    return above_ * cap_shard_ + (below_keys_ + below_ * (clock + shift_) - residues_) / dcp_ + lefts_;
  }

 private:
  void count_below(std::int64_t key, std::int64_t clock, bool joins) noexcept;
  void step(std::int64_t clock) noexcept;
  void recount(const RunningItems& items, std::int64_t clock) noexcept;
  std::int64_t modulo(std::int64_t value) const noexcept {
    const std::int64_t left = value % period_;
    return left < 0 ? left + period_ : left;
  }

  std::int64_t shift_, cap_, cap_shard_, dcp_, stripe_, period_;
  std::int64_t above_ = 0, below_ = 0, below_keys_ = 0;
  std::int64_t residues_ = 0, lefts_ = 0;  // of t over the period, and that up to a stripe, summed
  std::int64_t inside_ = 0;                // requests whose residue lies inside the first stripe
  std::vector<std::int32_t> counts_;       // requests below the cap by key modulo the period
};

}  // namespace steppe
