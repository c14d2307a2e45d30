#include "steppe/features.hpp"

#include <algorithm>
#include <cmath>

#include "aggregate.hpp"
#include "sums.hpp"

namespace steppe {

const char* describe(Status status) noexcept {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::length_mismatch:
      return "scheduled and computed must have one entry a request: their lengths differ";
    case Status::negative_tokens:
      return "scheduled and computed are token counts: a negative one cannot be priced";
    case Status::negative_setting:
      return "decode_threshold, sm_budget, pad_tokens and group_tokens must be 0 or more";
    case Status::beyond_max_len:
      return "computed + scheduled exceeds the deployment's max_model_len";
    case Status::too_many_tokens:
      return "the batch, or one context, holds more than 2^31 - 1 tokens";
    case Status::duplicate_request:
      return "the running batch has a request of this id already";
    case Status::unknown_request:
      return "the running batch has no request of this id";
  }
  return "unknown status";
}

std::int64_t shard_tokens(std::int64_t tokens, std::int32_t dcp, std::int32_t interleave) noexcept {
  if (dcp <= 1 || tokens <= 0) return tokens;
  const std::int64_t stripe = interleave;
  const std::int64_t base = tokens / stripe / dcp * stripe;
  return std::max<std::int64_t>(1, base + std::min(tokens - base * dcp, stripe));
}

std::int64_t captured_size(std::int64_t tokens, std::span<const std::int32_t> sizes) noexcept {
  const auto holds = std::lower_bound(sizes.begin(), sizes.end(), tokens);
  return holds == sizes.end() ? 0 : *holds;
}

double ranked_rows(std::int64_t s, std::int64_t c, std::int64_t low, std::int64_t high) noexcept {
  if (low >= high) return 0;
  const auto cube = [low, high](std::int64_t x) {
    const double keys = static_cast<double>(std::clamp(x, low, high));
    return keys * keys * keys;
  };
  return (cube(c + s) - cube(c)) / 48;
}

double causal_pairs(std::int64_t s, std::int64_t c, std::int64_t window) noexcept {
  const double chunk = static_cast<double>(s), cached = static_cast<double>(c);
  if (window <= 0) return chunk * (cached + chunk / 2);
  // n queries still see everything before them; the others see a full window.
  const double n = static_cast<double>(std::clamp<std::int64_t>(std::min(s, window - c), 0, s));
  return n * (cached + 1) + n * (n - 1) / 2 - n / 2 + (chunk - n) * static_cast<double>(window);
}

namespace {

// The prefill-context split of one chunk: 2*pcp pieces of ceil(s / 2*pcp), rank r owns pieces r and
// 2*pcp-1-r. (vllm/v1/worker/gpu/pcp_manager.py:222-273)
struct Zigzag {
  std::int64_t s, piece;
  std::int32_t pcp;

  Zigzag(std::int64_t tokens, std::int32_t ranks) noexcept
      : s(tokens), piece((tokens + 2 * ranks - 1) / (2 * ranks)), pcp(ranks) {}

  std::int64_t begin(std::int64_t index) const noexcept { return std::min(index * piece, s); }
  std::int64_t size(std::int64_t index) const noexcept { return begin(index + 1) - begin(index); }
  // Too short to leave every rank a full first piece: the engine runs it whole everywhere under dcp.
  bool too_short() const noexcept { return (2 * pcp - 1) * piece >= s; }

  std::int64_t busiest_tokens() const noexcept {
    std::int64_t most = 0;
    for (std::int32_t r = 0; r < pcp; ++r) most = std::max(most, size(r) + size(2 * pcp - 1 - r));
    return most;
  }
  double busiest_pairs(std::int64_t c, std::int64_t window) const noexcept {
    double most = 0;
    for (std::int32_t r = 0; r < pcp; ++r) {
      const std::int32_t second = 2 * pcp - 1 - r;
      most = std::max(most, causal_pairs(size(r), c + begin(r), window) +
                                causal_pairs(size(second), c + begin(second), window));
    }
    return most;
  }
};

bool splits(const FeaturePlan& plan, std::int64_t s) noexcept {
  return plan.pcp > 1 && !(plan.replicate_short_chunks && Zigzag(s, plan.pcp).too_short());
}

// Contexts of decodes: value + shift tokens each, between low and high.
struct Contexts {
  const std::int32_t* values;
  std::size_t size;
  std::int32_t shift, low, high;
  std::int64_t sum;  // shifts included
};

// Sum of the class over some decodes: tokens of one shard where each request is sharded, else 1/unit tokens.
std::int64_t read(const Contexts& d, const ReadClass& c) noexcept {
  if (sharded_each(c)) {
    if (unit_of(c) == 1 && sums::Shards::holds(c.dcp, c.interleave)) {
      const auto cap = static_cast<std::int32_t>(std::min<std::int64_t>(c.limit, INT32_MAX));
      if (cap > 0) return sums::sharded(d.values, d.size, d.shift, cap, {c.dcp, c.interleave});
    }
    std::int64_t total = 0;
    for (std::size_t i = 0; i < d.size; ++i) total += shard_read(d.values[i] + d.shift, c);
    return total;
  }
  std::int64_t head = d.sum;
  if (c.limit <= d.low) {
    head = c.limit * static_cast<std::int64_t>(d.size);
  } else if (c.limit < d.high) {
    head = sums::capped(d.values, d.size, static_cast<std::int32_t>(c.limit) - d.shift) +
           static_cast<std::int64_t>(d.size) * d.shift;
  }
  return sum_read(c, d.sum, head);
}

// Counts the requests and adds up the reads of their decodes, `block` contexts at a time.
Counts count_mixed(const Batch& batch, const FeaturePlan& plan, std::int64_t* reads) noexcept {
  constexpr std::size_t block = 1024;
  std::array<std::int32_t, block> contexts;
  Counts n;
  const std::int64_t threshold = batch.decode_threshold, width = plan.uniform_width;
  const std::size_t size = batch.scheduled.size();
  for (std::size_t start = 0; start < size; start += block) {
    Contexts d{contexts.data(), 0, 0, INT32_MAX, 0, 0};
    for (std::size_t i = start; i < std::min(size, start + block); ++i) {
      const std::int32_t tokens = batch.scheduled[i], past = batch.computed[i];
      const std::int64_t s = tokens, ctx = s + past;
      n.signs |= tokens | past;
      n.scheduled += s;
      n.max_context = std::max(n.max_context, ctx);
      if (s <= 0) continue;
      ++n.requests;
      n.off_width += s != width;
      n.any_context |= past;
      if (s > threshold) {
        n.first_prefill = std::min(n.first_prefill, i);
        n.last_prefill = i;
        n.max_chunk = std::max(n.max_chunk, s);
        continue;
      }
      ++n.decodes;
      n.decode_tokens += s;
      const auto value = static_cast<std::int32_t>(ctx);
      contexts[d.size++] = value;
      d.sum += ctx;
      d.low = std::min(d.low, value);
      d.high = std::max(d.high, value);
    }
    if (d.size == 0) continue;
    n.max_decode_context = std::max<std::int64_t>(n.max_decode_context, d.high);
    for (std::size_t i = 0; i < plan.reads.size(); ++i) reads[i] += read(d, plan.reads[i]);
  }
  return n;
}

// The same of a batch that decodes alike: every request schedules `width` tokens, no more than the threshold.
Counts count_alike(const Batch& batch, const FeaturePlan& plan, const sums::Scan& scan,
                   std::int64_t* reads) noexcept {
  const std::size_t size = batch.scheduled.size();
  const std::int32_t width = batch.scheduled[0];
  Counts n;
  n.requests = n.decodes = static_cast<std::int64_t>(size);
  n.scheduled = n.decode_tokens = n.decodes * width;
  n.max_context = n.max_decode_context = std::int64_t{scan.high} + width;
  n.off_width = width == plan.uniform_width ? 0 : n.requests;
  n.any_context = scan.high;
  n.signs = scan.signs;
  if (n.max_context > INT32_MAX) return n;
  const Contexts d{batch.computed.data(),      size, width, scan.low + width, scan.high + width,
                   scan.computed + n.scheduled};
  for (std::size_t i = 0; i < plan.reads.size(); ++i) reads[i] = read(d, plan.reads[i]);
  return n;
}

Counts count(const Batch& batch, const FeaturePlan& plan, std::int64_t* reads) noexcept {
  const std::size_t size = batch.scheduled.size();
  if (size == 0) return {};
  const sums::Scan scan = sums::scan(batch.scheduled.data(), batch.computed.data(), size);
  const std::int32_t width = batch.scheduled[0];
  const bool alike = scan.differs == 0 && scan.signs >= 0 && width > 0 && width <= batch.decode_threshold;
  return alike ? count_alike(batch, plan, scan, reads) : count_mixed(batch, plan, reads);
}

double prefill_figure(const Batch& batch, const FeaturePlan& plan, const PairClass& c,
                      const Counts& n) noexcept {
  const std::int64_t threshold = batch.decode_threshold;
  double total = 0;
  for (std::size_t i = n.first_prefill; i <= n.last_prefill; ++i) {
    const std::int64_t s = batch.scheduled[i], past = batch.computed[i];
    if (s <= threshold || s <= 0) continue;
    const std::int64_t end = past + s;
    const std::int64_t visible = c.window > 0 ? std::min(end, c.window + c.slack) : end;
    switch (c.figure) {
      case PairFigure::visible:
        total = std::max(total, static_cast<double>(visible));
        break;
      case PairFigure::context:
        total += past > 0 ? static_cast<double>(visible) : 0;
        break;
      case PairFigure::chunked:
        total += static_cast<double>(std::max(s, c.slack));
        break;
      case PairFigure::ranked:
        total += ranked_rows(s, past, c.select, c.window);
        break;
      case PairFigure::pairs: {
        const std::int64_t window = c.select > 0 ? c.select : c.window;
        const double pairs =
            splits(plan, s) ? Zigzag(s, plan.pcp).busiest_pairs(past, window) : causal_pairs(s, past, window);
        total += pairs;
        break;
      }
    }
  }
  return total / static_cast<double>(c.ratio);
}

std::int64_t withheld(const Batch& batch, const FeaturePlan& plan) noexcept {
  std::int64_t total = 0;
  for (const std::int32_t s : batch.scheduled) {
    if (s > batch.decode_threshold && s > 0 && splits(plan, s))
      total += s - Zigzag(s, plan.pcp).busiest_tokens();
  }
  return total;
}

std::int64_t rounded(std::int64_t parts, std::int64_t unit) noexcept {
  return (2 * parts + unit) / (2 * unit);
}

}  // namespace

std::int64_t shard_read(std::int64_t ctx, const ReadClass& c) noexcept {
  return shard_tokens(std::max<std::int64_t>(1, rounded(parts_read(ctx, c), unit_of(c))), c.dcp,
                      c.interleave);
}

// A pooled read is sharded once, after it is summed.
double tokens_read(const ReadClass& c, std::int64_t sum) noexcept {
  if (sharded_each(c)) return static_cast<double>(sum);
  const std::int64_t unit = unit_of(c);
  if (c.dcp > 1) return static_cast<double>(shard_tokens(rounded(sum, unit), c.dcp, c.interleave));
  return static_cast<double>(sum) / static_cast<double>(unit);
}

Status set_features(const Counts& n, const std::int64_t* reads, std::int64_t held_back, const Batch& settings,
                    const FeaturePlan& plan, Features& out) noexcept {
  if (n.signs < 0) return Status::negative_tokens;
  if (plan.max_model_len > 0 && n.max_context > plan.max_model_len) return Status::beyond_max_len;
  if (std::max(n.scheduled + settings.pad_tokens, n.max_context) > INT32_MAX) return Status::too_many_tokens;

  const std::int64_t tokens = n.scheduled + settings.pad_tokens - held_back;
  auto& f = out.value;
  const auto set = [&f](Feature feature, std::int64_t value) { f[feature] = static_cast<double>(value); };
  // Rows are padded to a captured size by what is scheduled, before any split.
  const std::int64_t graph =
      plan.pad_to_capture && held_back == 0 ? captured_size(tokens, plan.capture_sizes) : 0;
  set(kTokens, tokens);
  set(kPaddedTokens, graph > 0 && tokens > 0 ? graph : tokens);
  set(kScheduled, n.scheduled);
  set(kRequests, n.requests);
  set(kDecodes, n.decodes);
  set(kDecodeTokens, n.decode_tokens);
  set(kPrefills, n.requests - n.decodes);
  set(kPrefillTokens, n.scheduled - n.decode_tokens - held_back);
  set(kContextRows, n.any_context > 0 ? tokens : 0);
  set(kUnpadded, graph == 0);
  set(kMaxContext, n.max_decode_context);
  set(kMaxChunk, n.max_chunk);
  set(kSampledRows, n.decode_tokens + n.requests - n.decodes);
  set(kGroupRows, settings.group_tokens > 0 && tokens > 0
                      ? std::max<std::int64_t>(settings.group_tokens, tokens)
                      : tokens * plan.funnel);
  out.uniform = n.off_width == 0;
  std::size_t at = kFixedFeatures;
  for (std::size_t i = 0; i < plan.reads.size(); ++i) f[at++] = tokens_read(plan.reads[i], reads[i]);
  std::fill_n(f.begin() + static_cast<std::ptrdiff_t>(at), plan.pairs.size(), 0.0);
  return Status::ok;
}

Status aggregate(const Batch& batch, const FeaturePlan& plan, Features& out) noexcept {
  if (batch.scheduled.size() != batch.computed.size()) return Status::length_mismatch;
  if ((batch.decode_threshold | batch.sm_budget | batch.pad_tokens | batch.group_tokens) < 0)
    return Status::negative_setting;
  std::array<std::int64_t, kMaxFeatures> reads;
  std::fill_n(reads.begin(), plan.reads.size(), 0);
  const Counts n = count(batch, plan, reads.data());
  const bool prefills = n.requests > n.decodes;
  const std::int64_t held_back = prefills && plan.pcp > 1 ? withheld(batch, plan) : 0;
  const Status status = set_features(n, reads.data(), held_back, batch, plan, out);
  if (status != Status::ok || !prefills) return status;
  std::size_t at = kFixedFeatures + plan.reads.size();
  for (const PairClass& c : plan.pairs) out.value[at++] = prefill_figure(batch, plan, c, n);
  return status;
}

}  // namespace steppe
