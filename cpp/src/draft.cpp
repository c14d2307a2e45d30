#include "steppe/draft.hpp"

#include <algorithm>

#include "aggregate.hpp"

namespace steppe {

const char* objection(const Pass& p) noexcept {
  if (p.block < 1 || p.count < 1 || p.width < 1) return "block, count and width must be at least 1";
  if ((p.extra | p.head_rows | p.ahead | p.ceiling | p.max_requests | p.max_rows) < 0)
    return "counts must be 0 or more";
  return nullptr;
}

std::int64_t captured_requests(std::int64_t requests, const Pass& pass,
                               std::span<const std::int32_t> sizes) noexcept {
  if (pass.graph != Pass::Graph::own || requests <= 0) return 0;
  // Captured sizes are rounded up to whole requests, so any size above the rows of one request fewer will do.
  const std::int64_t size = captured_size((requests - 1) * pass.width + 1, sizes);
  const std::int64_t fits = (size + pass.width - 1) / pass.width;
  return fits <= pass.max_requests && fits * pass.width <= pass.ceiling ? fits : 0;
}

namespace {

// A request as the drafter runs it.
struct Row {
  std::int64_t scheduled, context;  // rows, and the context they see at the end
};

// The batch as the drafter runs it: whole, one row a request or a block a request.
class Drafted : public DraftRows {
 public:
  Drafted(const Batch& batch, const FeaturePlan& plan, const Pass& pass, std::int32_t run) noexcept
      : DraftRows(batch, plan, pass, run), batch_(batch) {}

  std::size_t size() const noexcept { return batch_.scheduled.size(); }
  Row operator[](std::size_t i) const noexcept {
    const std::int64_t s = batch_.scheduled[i];
    if (s <= 0) return {0, 0};
    return {scheduled(s), std::min(batch_.computed[i] + shift(s), limit)};
  }

 private:
  const Batch& batch_;
};

struct Counted : DraftCounts {
  std::int64_t contexts = 0;  // of all decodes together
};

// Decode read of one class (see ReadClass).
double read(const Drafted& rows, const Counted& n, const ReadClass& c) noexcept {
  // A bound that binds no request reads every context whole.
  if (!sharded_each(c) && c.limit >= n.max_context)
    return tokens_read(c, sum_read(c, n.contexts, n.contexts));
  std::int64_t total = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row row = rows[i];
    if (row.scheduled <= 0 || row.scheduled > rows.longest_decode) continue;
    total += sharded_each(c) ? shard_read(row.context, c) : parts_read(row.context, c);
  }
  return tokens_read(c, total);
}

// Prefill figure of one class (see PairClass). A pass that adds rows never runs under a prefill-context
// split.
double prefill_figure(const Drafted& rows, const PairClass& c) noexcept {
  double total = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row row = rows[i];
    if (row.scheduled <= rows.longest_decode) continue;
    const std::int64_t past = row.context - row.scheduled;
    const std::int64_t visible = c.window > 0 ? std::min(row.context, c.window + c.slack) : row.context;
    switch (c.figure) {
      case PairFigure::visible:
        total = std::max(total, static_cast<double>(visible));
        break;
      case PairFigure::context:
        total += past > 0 ? static_cast<double>(visible) : 0;
        break;
      case PairFigure::chunked:
        total += static_cast<double>(std::max(row.scheduled, c.slack));
        break;
      case PairFigure::ranked:
        total += ranked_rows(row.scheduled, past, c.select, c.window);
        break;
      case PairFigure::pairs:
        total += causal_pairs(row.scheduled, past, c.select > 0 ? c.select : c.window);
        break;
    }
  }
  return total / static_cast<double>(c.ratio);
}

Counted count(const Drafted& rows) noexcept {
  Counted n;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row row = rows[i];
    if (row.scheduled <= 0) continue;
    const bool decode = row.scheduled <= rows.longest_decode;
    n.rows += row.scheduled;
    n.decodes += decode;
    n.prefills += !decode;
    n.decode_rows += decode ? row.scheduled : 0;
    n.contexts += decode ? row.context : 0;
    n.max_context = decode ? std::max(n.max_context, row.context) : n.max_context;
    n.max_chunk = decode ? n.max_chunk : std::max(n.max_chunk, row.scheduled);
  }
  return n;
}

// Rows of the pass under its graphs, and the requests a full graph carries (0 = not under one).
struct Captured {
  std::int64_t rows, requests;
  bool any;
};

// COVERAGE LIMIT: an autoregressive drafter is charged under the target's graph mode and capture ceiling, a
// parallel-block drafter under its own. The engine captures separate graphs for the first too: pass 0 of
// EAGLE and one-module MTP has a manager for uniform batches of 1 + k rows and for mixed ones, the later
// passes one for full graphs of one row a request, up to min(ceiling, max_num_seqs) requests, and both replay
// on steps whose target ran eagerly or piecewise
// (vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py:97-194). So above the target's ceiling the
// later passes are charged as eager though a graph covers them, and on mixed steps as piecewise though a full
// one does. Several MTP modules run eagerly on every mixed step and are charged as piecewise there
// (vllm/v1/worker/gpu/spec_decode/multi_module_mtp/speculator.py:98-129). A draft model with weights of its
// own is never captured and is charged so (vllm/v1/worker/gpu/spec_decode/draft_model/speculator.py:67-71).
Captured draft_has_own_graphs(const FeaturePlan& plan, const Pass& pass, std::int64_t rows,
                              const Features& target, std::int64_t requests) noexcept {
  if (pass.graph == Pass::Graph::eager) return {rows, 0, false};
  if (pass.graph == Pass::Graph::own) {
    const std::int64_t fits = captured_requests(requests, pass, plan.capture_sizes);
    if (fits == 0) return {rows, 0, false};
    if (pass.rows != Pass::Rows::context) return {fits * (rows / requests), fits, true};
    // The graph projects as many context rows as its requests could hold; the rest follows eagerly.
    // (vllm/v1/worker/gpu/spec_decode/dflash/speculator.py:452-484)
    const std::int64_t inside = std::min<std::int64_t>(fits * pass.block, pass.max_rows);
    return {inside + std::max<std::int64_t>(0, rows - inside), fits, true};
  }
  if (target[kUnpadded] > 0) return {rows, 0, false};
  const std::int64_t size = captured_size(rows, plan.capture_sizes);
  if (size == 0) return {rows, 0, false};
  const bool one = pass.rows == Pass::Rows::one_a_request;
  const std::int64_t fits = one              ? size
                            : target.uniform ? (size + plan.uniform_width - 1) / plan.uniform_width
                                             : 0;
  return {size, std::min<std::int64_t>(fits, pass.max_requests), true};
}

}  // namespace

DraftRows::DraftRows(const Batch& settings, const FeaturePlan& plan, const Pass& pass,
                     std::int32_t run) noexcept
    : whole(pass.rows == Pass::Rows::batch || pass.rows == Pass::Rows::context),
      rows(whole                                    ? pass.extra
           : pass.rows == Pass::Rows::one_a_request ? 1
                                                    : pass.block),
      ahead(pass.ahead + (pass.grows ? run : 0)),
      // (vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py:853-864)
      limit(plan.max_model_len > 0 ? plan.max_model_len : INT64_MAX),
      longest_decode(whole ? static_cast<std::int64_t>(settings.decode_threshold) + pass.extra : INT64_MAX) {}

void set_draft_features(const Batch& settings, const FeaturePlan& plan, const Pass& pass,
                        const Features& target, const DraftCounts& n, Features& out) noexcept {
  const bool same = runs_target_rows(pass);
  auto& f = out.value;
  const auto set = [&f](Feature feature, std::int64_t value) { f[feature] = static_cast<double>(value); };
  const auto requests = static_cast<std::int64_t>(target[kRequests]);
  auto rows = static_cast<std::int64_t>(target[kTokens]) - settings.pad_tokens;
  if (!same) {
    rows = n.rows;
    set(kDecodes, n.decodes);
    set(kDecodeTokens, n.decode_rows);
    set(kPrefills, n.prefills);
    set(kPrefillTokens, n.rows - n.decode_rows);
    set(kMaxContext, n.max_context);
    set(kMaxChunk, n.max_chunk);
  }
  const Captured captured = draft_has_own_graphs(plan, pass, rows, target, requests);
  const bool pads = plan.pad_to_capture && captured.any;
  set(kTokens, rows);
  set(kPaddedTokens, pads ? captured.rows : rows);
  set(kUnpadded, !captured.any);
  set(kContextRows, !same || target[kContextRows] > 0 ? rows : 0);
  set(kSampledRows, (pads && captured.requests > 0 ? captured.requests : requests) * pass.head_rows);
  set(kGroupRows, same && settings.group_tokens > 0 ? std::max<std::int64_t>(settings.group_tokens, rows)
                                                    : rows * plan.funnel);
  if (pass.graph ==
      Pass::Graph::own) {  // host time by the drafter's own ceiling; its batch is always uniform
    set(kScheduled, captured.any ? 1 : INT32_MAX);
    out.uniform = true;
  }
}

void draft_features(const Batch& batch, const FeaturePlan& plan, const Pass& pass, std::int32_t run,
                    const Features& target, Features& out) noexcept {
  out = target;
  if (runs_target_rows(pass)) return set_draft_features(batch, plan, pass, target, {}, out);
  const Drafted drafted(batch, plan, pass, run);
  const Counted n = count(drafted);
  set_draft_features(batch, plan, pass, target, n, out);
  std::size_t at = kFixedFeatures;
  for (const ReadClass& c : plan.reads) out.value[at++] = n.decodes > 0 ? read(drafted, n, c) : 0;
  for (const PairClass& c : plan.pairs) out.value[at++] = n.prefills > 0 ? prefill_figure(drafted, c) : 0;
}

}  // namespace steppe
