#include "steppe/features.hpp"

#include <algorithm>
#include <cmath>

namespace steppe {

const char* describe(Status status) noexcept {
  switch (status) {
    case Status::ok: return "ok";
    case Status::length_mismatch: return "scheduled and computed must have one entry a request: their lengths differ";
    case Status::negative_tokens: return "scheduled and computed are token counts: a negative one cannot be priced";
    case Status::negative_setting: return "decode_threshold, sm_budget, pad_tokens and group_tokens must be 0 or more";
    case Status::beyond_max_len: return "computed + scheduled exceeds the deployment's max_model_len";
    case Status::too_many_tokens: return "the batch holds more than 2^31 - 1 tokens";
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

double causal_pairs(std::int64_t s, std::int64_t c, std::int64_t window) noexcept {
  const double chunk = static_cast<double>(s), cached = static_cast<double>(c);
  if (window <= 0) return chunk * (cached + chunk / 2);
  // n queries still see everything before them; the others see a full window.
  const double n = static_cast<double>(std::clamp<std::int64_t>(std::min(s, window - c), 0, s));
  return n * (cached + 1) + n * (n - 1) / 2 - n / 2 + (chunk - n) * static_cast<double>(window);
}

namespace {

// The prefill-context split of one chunk: 2*pcp pieces of ceil(s / 2*pcp), rank r owns pieces r and 2*pcp-1-r.
// (vllm/v1/worker/gpu/pcp_manager.py:222-273)
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

struct Counts {
  std::int64_t scheduled = 0, requests = 0, decodes = 0, decode_tokens = 0, withheld = 0;
  std::int64_t max_context = 0, max_decode_context = 0, max_chunk = 0, off_width = 0;
  std::int32_t signs = 0, any_context = 0;
};

Counts count(const Batch& batch, const FeaturePlan& plan) noexcept {
  Counts n;
  const std::int32_t* scheduled = batch.scheduled.data();
  const std::int32_t* computed = batch.computed.data();
  const std::size_t size = batch.scheduled.size();
  const std::int64_t threshold = batch.decode_threshold, width = plan.uniform_width;
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t s = scheduled[i], ctx = s + computed[i];
    n.signs |= scheduled[i] | computed[i];
    const bool runs = s > 0, decode = runs && s <= threshold;
    n.scheduled += s;
    n.requests += runs;
    n.off_width += runs && s != width;
    n.any_context |= runs ? computed[i] : 0;
    n.max_context = std::max(n.max_context, ctx);
    n.decodes += decode;
    n.decode_tokens += decode ? s : 0;
    n.max_decode_context = std::max(n.max_decode_context, decode ? ctx : 0);
    n.max_chunk = std::max(n.max_chunk, decode ? 0 : s);
  }
  return n;
}

std::int64_t read_of(std::int64_t ctx, const ReadClass& c) noexcept {
  const std::int64_t head = std::min(ctx, c.limit);
  return c.tail_ratio > 0 ? head * c.tail_ratio + (ctx - head) : head;
}

double read(const Batch& batch, const ReadClass& c) noexcept {
  const std::int32_t* scheduled = batch.scheduled.data();
  const std::int32_t* computed = batch.computed.data();
  const std::size_t size = batch.scheduled.size();
  const std::int64_t threshold = batch.decode_threshold;
  const std::int64_t unit = std::max<std::int64_t>(1, c.tail_ratio) * c.divide;  // reads are counted in 1/unit tokens
  const auto rounded = [unit](std::int64_t parts) { return (2 * parts + unit) / (2 * unit); };
  std::int64_t total = 0;
  if (c.dcp > 1 && !c.shard_sum) {
    for (std::size_t i = 0; i < size; ++i) {
      const std::int64_t s = scheduled[i];
      if (s > 0 && s <= threshold) total += shard_tokens(std::max<std::int64_t>(1, rounded(read_of(s + computed[i], c))), c.dcp, c.interleave);
    }
    return static_cast<double>(total);
  }
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t s = scheduled[i], ctx = s + computed[i];
    total += s > 0 && s <= threshold ? read_of(ctx, c) : 0;
  }
  if (c.dcp > 1) return static_cast<double>(shard_tokens(rounded(total), c.dcp, c.interleave));
  return static_cast<double>(total) / static_cast<double>(unit);
}

double prefill_figure(const Batch& batch, const FeaturePlan& plan, const PairClass& c) noexcept {
  const std::int64_t threshold = batch.decode_threshold;
  double total = 0;
  for (std::size_t i = 0; i < batch.scheduled.size(); ++i) {
    const std::int64_t s = batch.scheduled[i], past = batch.computed[i];
    if (s <= threshold || s <= 0) continue;
    const std::int64_t end = past + s;
    const std::int64_t visible = c.window > 0 ? std::min(end, c.window + c.slack) : end;
    switch (c.figure) {
      case PairFigure::visible: total = std::max(total, static_cast<double>(visible)); break;
      case PairFigure::context: total += past > 0 ? static_cast<double>(visible) : 0; break;
      case PairFigure::chunked: total += static_cast<double>(std::max(s, c.slack)); break;
      case PairFigure::pairs: {
        const std::int64_t window = c.select > 0 ? c.select : c.window;
        const double pairs = splits(plan, s) ? Zigzag(s, plan.pcp).busiest_pairs(past, window)
                                             : causal_pairs(s, past, window);
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
    if (s > batch.decode_threshold && s > 0 && splits(plan, s)) total += s - Zigzag(s, plan.pcp).busiest_tokens();
  }
  return total;
}

}  // namespace

Status aggregate(const Batch& batch, const FeaturePlan& plan, Features& out) noexcept {
  if (batch.scheduled.size() != batch.computed.size()) return Status::length_mismatch;
  if ((batch.decode_threshold | batch.sm_budget | batch.pad_tokens | batch.group_tokens) < 0) return Status::negative_setting;
  const Counts n = count(batch, plan);
  if (n.signs < 0) return Status::negative_tokens;
  if (plan.max_model_len > 0 && n.max_context > plan.max_model_len) return Status::beyond_max_len;
  if (n.scheduled + batch.pad_tokens > INT32_MAX) return Status::too_many_tokens;

  const std::int64_t held_back = plan.pcp > 1 ? withheld(batch, plan) : 0;
  const std::int64_t tokens = n.scheduled + batch.pad_tokens - held_back;
  auto& f = out.value;
  const auto set = [&f](Feature feature, std::int64_t value) { f[feature] = static_cast<double>(value); };
  // Rows are padded to a captured size by what is scheduled, before any split.
  const std::int64_t graph = plan.pad_to_capture && held_back == 0 ? captured_size(tokens, plan.capture_sizes) : 0;
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
  set(kMaxChunk, n.requests > n.decodes ? n.max_chunk : 0);
  set(kSampledRows, n.decode_tokens + n.requests - n.decodes);
  set(kGroupRows, batch.group_tokens > 0 && tokens > 0 ? std::max<std::int64_t>(batch.group_tokens, tokens)
                                                       : tokens * plan.funnel);
  out.uniform = n.off_width == 0;
  std::size_t at = kFixedFeatures;
  for (const ReadClass& c : plan.reads) f[at++] = n.decodes > 0 ? read(batch, c) : 0;
  for (const PairClass& c : plan.pairs) f[at++] = n.requests > n.decodes ? prefill_figure(batch, plan, c) : 0;
  return Status::ok;
}

}  // namespace steppe
