#include "steppe/running.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "aggregate.hpp"
#include "running_sums.hpp"

namespace steppe {
namespace {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;
constexpr std::int64_t kMaxAdvance = std::int64_t{1} << 31;

}  // namespace

class RunningBatch::State {
 public:
  State(const Kernel& kernel, RunningSettings given)
      : kernel_(kernel), plan_(kernel.plan().features), width_(given.width) {
    if (given.width < 1 || (given.sm_budget | given.pad_tokens | given.group_tokens) < 0) {
      throw std::invalid_argument("a running batch needs a width of at least 1 and settings of 0 or more");
    }
    settings_ = {{}, {}, width_, given.sm_budget, given.pad_tokens, given.group_tokens};
    views_.push_back(view(width_, width_, kUnlimited));
    for (const DraftRun& run : kernel.draft_runs()) {
      const Pass& pass = kernel.plan().passes[run.pass];
      const DraftRows rows(settings_, plan_, pass, run.run);
      const bool same = runs_target_rows(pass);
      views_.push_back(
          same ? View{} : view(rows.scheduled(width_), rows.shift(width_), std::min(rows.limit, kUnlimited)));
    }
    drafts_.resize(views_.size() - 1);
  }

  Status add(std::uint64_t id, std::int32_t computed) {
    if (computed < 0) return Status::negative_tokens;
    const std::int64_t key = computed - clock_;
    if (!keys_.try_emplace(id, key).second) return Status::duplicate_request;
    const RunningItem item{key, id};
    items_.insert(std::lower_bound(items_.begin(), items_.end(), item), item);
    count(key, true);
    return Status::ok;
  }

  Status remove(std::uint64_t id) noexcept {
    const auto found = keys_.find(id);
    if (found == keys_.end()) return Status::unknown_request;
    const std::int64_t key = found->second;
    items_.erase(std::lower_bound(items_.begin(), items_.end(), RunningItem{key, id}));
    keys_.erase(found);
    count(key, false);
    return Status::ok;
  }

  Status advance(std::int64_t tokens) noexcept {
    if (tokens < 0) return Status::negative_tokens;
    if (tokens > kMaxAdvance || clock_ > kUnlimited / 2) return Status::too_many_tokens;
    if (tokens == 0) return Status::ok;
    clock_ += tokens;
    for (CappedSum& sum : capped_) sum.advance(items_, clock_);
    for (ShardedSum& sum : sharded_) sum.advance(items_, clock_, tokens);
    return Status::ok;
  }

  std::size_t size() const noexcept { return items_.size(); }

  std::int64_t computed(std::uint64_t id) const noexcept {
    const auto found = keys_.find(id);
    return found == keys_.end() ? -1 : found->second + clock_;
  }

  Status price(Estimate& out) noexcept {
    Features target;
    const Status status = set_target(target);
    if (status != Status::ok) return status;
    const std::span<const DraftRun> runs = kernel_.draft_runs();
    if (!items_.empty()) {
      for (std::size_t i = 0; i < runs.size(); ++i) set_draft(runs[i], views_[i + 1], target, drafts_[i]);
    }
    kernel_.price(target, drafts_, settings_, out);
    return status;
  }

 private:
  enum class Source : std::uint8_t { capped, sharded, requests };
  struct Read {
    Source source;
    std::size_t index;
  };
  // The batch as one forward sees it: `rows` rows a request, contexts of min(computed + shift, limit).
  struct View {
    std::int64_t rows = 0, shift = 0, limit = 0;
    std::size_t contexts = 0;  // their sum, in capped_
    std::vector<Read> reads;   // by class
  };

  std::size_t capped(std::int64_t limit) {
    const auto same = [limit](const CappedSum& sum) { return sum.limit() == limit; };
    const auto found = std::find_if(capped_.begin(), capped_.end(), same);
    if (found != capped_.end()) return static_cast<std::size_t>(found - capped_.begin());
    capped_.emplace_back(limit);
    return capped_.size() - 1;
  }

  View view(std::int64_t rows, std::int64_t shift, std::int64_t limit) {
    View v{rows, shift, limit, capped(limit - shift), {}};
    for (const ReadClass& c : plan_.reads) {
      const std::int64_t cap = std::min(c.limit, limit);
      if (!sharded_each(c)) {
        v.reads.push_back({Source::capped, capped(cap - shift)});
      } else if (ShardedSum::follows(c, cap)) {
        sharded_.emplace_back(c, shift, cap);
        v.reads.push_back({Source::sharded, sharded_.size() - 1});
      } else {
        v.reads.push_back({Source::requests, 0});
      }
    }
    return v;
  }

  void count(std::int64_t key, bool joins) noexcept {
    for (CappedSum& sum : capped_) sum.count(key, clock_, joins);
    for (ShardedSum& sum : sharded_) sum.count(key, clock_, joins);
  }

  std::int64_t contexts(const View& v, std::size_t index) const noexcept {
    return capped_[index].sum(items_.size(), clock_) + static_cast<std::int64_t>(items_.size()) * v.shift;
  }

  std::int64_t longest(const View& v) const noexcept {
    return items_.empty() ? 0 : std::min(items_.front().key + clock_ + v.shift, v.limit);
  }

  std::int64_t sum(const View& v, std::size_t i) const noexcept {
    const ReadClass& c = plan_.reads[i];
    const Read& read = v.reads[i];
    if (read.source == Source::sharded) return sharded_[read.index].sum(clock_);
    if (read.source == Source::capped) return sum_read(c, contexts(v, v.contexts), contexts(v, read.index));
    std::int64_t total = 0;
    for (const RunningItem& item : items_)
      total += shard_read(std::min(item.key + clock_ + v.shift, v.limit), c);
    return total;
  }

  Status set_target(Features& out) const noexcept {
    const View& v = views_.front();
    Counts n;
    n.requests = n.decodes = static_cast<std::int64_t>(items_.size());
    n.scheduled = n.decode_tokens = n.requests * width_;
    n.max_context = n.max_decode_context = longest(v);
    n.any_context = n.max_context > width_;
    n.off_width = width_ == plan_.uniform_width ? 0 : n.requests;
    std::array<std::int64_t, kMaxFeatures> reads;
    for (std::size_t i = 0; i < plan_.reads.size(); ++i) reads[i] = sum(v, i);
    return set_features(n, reads.data(), 0, settings_, plan_, out);
  }

  void set_draft(const DraftRun& run, const View& v, const Features& target, Features& out) const noexcept {
    const Pass& pass = kernel_.plan().passes[run.pass];
    DraftCounts n;
    n.decodes = static_cast<std::int64_t>(items_.size());
    n.rows = n.decode_rows = n.decodes * v.rows;
    n.max_context = longest(v);
    out = target;
    set_draft_features(settings_, plan_, pass, target, n, out);
    if (runs_target_rows(pass)) return;
    for (std::size_t i = 0; i < plan_.reads.size(); ++i) {
      out.value[kFixedFeatures + i] = tokens_read(plan_.reads[i], sum(v, i));
    }
  }

  const Kernel& kernel_;
  const FeaturePlan& plan_;
  std::int32_t width_;
  Batch settings_;
  std::int64_t clock_ = 0;
  RunningItems items_;
  std::unordered_map<std::uint64_t, std::int64_t> keys_;
  std::vector<CappedSum> capped_;
  std::vector<ShardedSum> sharded_;
  std::vector<View> views_;  // the target's, then one a draft run
  std::vector<Features> drafts_;
};

RunningBatch::RunningBatch(const Kernel& kernel, RunningSettings settings)
    : state_(std::make_unique<State>(kernel, settings)) {}
RunningBatch::~RunningBatch() = default;
RunningBatch::RunningBatch(RunningBatch&&) noexcept = default;
RunningBatch& RunningBatch::operator=(RunningBatch&&) noexcept = default;

Status RunningBatch::add(std::uint64_t id, std::int32_t computed) { return state_->add(id, computed); }
Status RunningBatch::remove(std::uint64_t id) noexcept { return state_->remove(id); }
Status RunningBatch::advance(std::int64_t tokens) noexcept { return state_->advance(tokens); }
std::size_t RunningBatch::size() const noexcept { return state_->size(); }
std::int64_t RunningBatch::computed(std::uint64_t id) const noexcept { return state_->computed(id); }
Status RunningBatch::price(Estimate& out) noexcept { return state_->price(out); }

Status RunningBatch::price_run(std::int64_t steps, std::span<Estimate> each, RunTotal& total) noexcept {
  total = {};
  for (; total.steps < steps; ++total.steps) {
    Estimate e;
    Status status = state_->price(e);
    if (status == Status::ok) status = state_->advance(1);
    if (status != Status::ok) return status;
    total.no_overlap_ns += e.no_overlap_ns;
    total.overlap_ns += e.overlap_ns;
    if (const auto at = static_cast<std::size_t>(total.steps); at < each.size()) each[at] = e;
  }
  return Status::ok;
}

}  // namespace steppe
