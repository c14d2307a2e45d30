#include "steppe/kernel.hpp"

#include <algorithm>

#include "law.hpp"
#include "program.hpp"

namespace steppe {

struct Kernel::Compiled {
  Plan plan;
  std::vector<Entry> entries;     // by stage, as explain() walks them
  std::vector<Program> programs;  // by pass
  std::vector<DraftRun> draft_runs;

  explicit Compiled(Plan given) : plan((validate(given), std::move(given))), entries(compile(plan)) {
    for (std::size_t pass = 0; pass < plan.passes.size(); ++pass) programs.emplace_back(plan, entries, pass);
    for (std::size_t pass = 1; pass < plan.passes.size(); ++pass) {
      const Pass& draft = plan.passes[pass];
      const std::int32_t runs = draft.grows ? draft.count : 1;
      for (std::int32_t run = 0; run < runs; ++run) {
        draft_runs.push_back({pass, run, draft.grows ? 1.0 : static_cast<double>(draft.count)});
      }
    }
  }

  // How much an SM budget slows what computes.
  double slowed(const Batch& batch) const noexcept {
    const bool binds = batch.sm_budget > 0 && batch.sm_budget < plan.sm_count;
    return binds ? static_cast<double>(plan.sm_count) / batch.sm_budget : 1.0;
  }

  // The drafter's passes follow the target's forward; none runs where no request does.
  //
  // COVERAGE LIMIT: draft passes run this rank's own rows, without the data-parallel lockstep pad that the
  // target's forward carries. The engine pads them across the group as well: pass 0 of an autoregressive
  // drafter starts from the target's agreed token count
  // (vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py:287-301), and the uniform passes run as many
  // requests as the busiest rank on every rank, eager or not
  // (vllm/v1/worker/gpu/spec_decode/speculator.py:500-517, vllm/v1/worker/gpu/dp_utils.py:200-210). A rank
  // with fewer requests than the busiest is charged too little for drafting.
  template <class Drafted>
  void price_draft(const Batch& batch, double slow, Totals& totals, Drafted&& drafted) const noexcept {
    for (std::size_t i = 0; i < draft_runs.size(); ++i) {
      const DraftRun& run = draft_runs[i];
      programs[run.pass].price(drafted(run, i), batch, slow, run.times, totals);
    }
  }

  // `drafted(run, i)` yields the features of draft run i.
  template <class Drafted>
  void price(const Features& target, const Batch& batch, Estimate& out, Drafted&& drafted) const noexcept {
    Totals totals;
    const double slow = slowed(batch);
    programs[0].price(target, batch, slow, 1.0, totals);
    if (target[kRequests] > 0) price_draft(batch, slow, totals, drafted);
    out = estimate(totals, static_cast<std::int64_t>(target[kScheduled]));
  }

  // Adds the cost of each term of a pass to `out`, one entry a term.
  void explain(std::size_t pass, double times, const Features& f, const Batch& batch,
               std::vector<TermCost>& out) const {
    std::array<double, kMaxTerms> earlier;
    const double slow = slowed(batch);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      const Stage& stage = plan.stages[entry.stage];
      if (stage.pass != pass) continue;
      const terms::Cost cost = entry({f, batch, entry.derate ? slow : 1.0, earlier.data()});
      earlier[i] = cost.own + cost.hbm;
      out[i].own_s += cost.own * entry.count * stage.layers * times;
      out[i].hbm_s += cost.hbm * entry.count * stage.layers * times;
    }
  }
};

Kernel::Kernel(Plan plan) : compiled_(std::make_unique<const Compiled>(std::move(plan))) {}
Kernel::~Kernel() = default;
Kernel::Kernel(Kernel&&) noexcept = default;
Kernel& Kernel::operator=(Kernel&&) noexcept = default;

const Plan& Kernel::plan() const noexcept { return compiled_->plan; }

std::span<const DraftRun> Kernel::draft_runs() const noexcept { return compiled_->draft_runs; }

void Kernel::price(const Features& target, std::span<const Features> drafts, const Batch& settings,
                   Estimate& out) const noexcept {
  compiled_->price(target, settings, out,
                   [&](const DraftRun&, std::size_t i) noexcept -> const Features& { return drafts[i]; });
}

Status Kernel::step_time(const Batch& batch, Estimate& out) const noexcept {
  const FeaturePlan& plan = compiled_->plan.features;
  Features target;
  const Status status = aggregate(batch, plan, target);
  if (status != Status::ok) return status;
  Features features;
  compiled_->price(target, batch, out, [&](const DraftRun& run, std::size_t) noexcept -> const Features& {
    draft_features(batch, plan, compiled_->plan.passes[run.pass], run.run, target, features);
    return features;
  });
  return status;
}

Status Kernel::explain(const Batch& batch, std::vector<TermCost>& out) const {
  const FeaturePlan& plan = compiled_->plan.features;
  Features target, features;
  const Status status = aggregate(batch, plan, target);
  if (status != Status::ok) return status;
  out.clear();
  for (const Term& term : compiled_->plan.terms) out.push_back({&term, 0, 0});
  compiled_->explain(0, 1.0, target, batch, out);
  if (target[kRequests] <= 0) return status;
  for (const DraftRun& run : compiled_->draft_runs) {
    draft_features(batch, plan, compiled_->plan.passes[run.pass], run.run, target, features);
    compiled_->explain(run.pass, run.times, features, batch, out);
  }
  return status;
}

}  // namespace steppe
