#include "running_sums.hpp"

#include "aggregate.hpp"

namespace steppe {

bool ShardedSum::follows(const ReadClass& c, std::int64_t cap) noexcept {
  constexpr std::int64_t most = 1 << 16;  // counts kept a class
  return unit_of(c) == 1 && cap >= 1 && std::int64_t{c.dcp} * c.interleave <= most;
}

ShardedSum::ShardedSum(const ReadClass& c, std::int64_t shift, std::int64_t cap)
    : shift_(shift),
      cap_(cap),
      cap_shard_(shard_tokens(cap, c.dcp, c.interleave)),
      dcp_(c.dcp),
      stripe_(c.interleave),
      period_(dcp_ * stripe_),
      counts_(static_cast<std::size_t>(period_), 0) {}

void ShardedSum::count_below(std::int64_t key, std::int64_t clock, bool joins) noexcept {
  const std::int64_t residue = modulo(key + clock + shift_), by = joins ? 1 : -1;
  counts_[static_cast<std::size_t>(modulo(key))] += static_cast<std::int32_t>(by);
  below_ += by;
  below_keys_ += by * key;
  residues_ += by * residue;
  lefts_ += by * std::min(residue, stripe_);
  inside_ += residue < stripe_ ? by : 0;
}

// One token further, `clock` being the new time: the residues grow, but for those that complete a period.
void ShardedSum::step(std::int64_t clock) noexcept {
  const std::int64_t now = clock + shift_;
  const std::int64_t wrapping = counts_[static_cast<std::size_t>(modulo(-now))];
  const std::int64_t leaving = counts_[static_cast<std::size_t>(modulo(stripe_ - now))];
  residues_ += below_ - period_ * wrapping;
  lefts_ += inside_ - stripe_ * wrapping;
  inside_ += wrapping - leaving;
}

void ShardedSum::recount(const RunningItems& items, std::int64_t clock) noexcept {
  residues_ = lefts_ = inside_ = 0;
  for (std::size_t i = static_cast<std::size_t>(above_); i < items.size(); ++i) {
    const std::int64_t residue = modulo(items[i].key + clock + shift_);
    residues_ += residue;
    lefts_ += std::min(residue, stripe_);
    inside_ += residue < stripe_;
  }
}

void ShardedSum::advance(const RunningItems& items, std::int64_t clock, std::int64_t tokens) noexcept {
  if (below_ > 0) {
    if (tokens <= std::min(period_, below_)) {
      for (std::int64_t i = tokens - 1; i >= 0; --i) step(clock - i);
    } else {
      recount(items, clock);
    }
  }
  for (auto at = static_cast<std::size_t>(above_);
       at < items.size() && items[at].key + clock + shift_ >= cap_; ++at) {
    count_below(items[at].key, clock, false);
    ++above_;
  }
}

}  // namespace steppe
