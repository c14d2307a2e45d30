#include "steppe/kernel.hpp"

#include <algorithm>
#include <cmath>

#include "law.hpp"
#include "program.hpp"

namespace steppe {

struct Kernel::Compiled {
  Plan plan;
  std::vector<Entry> entries;     // by stage, as explain() walks them
  std::vector<Program> programs;  // by pass
  Composition composition;
  std::size_t slots = 0;

  explicit Compiled(Plan given)
      : plan((validate(given), std::move(given))), entries(compile(plan)), composition(plan) {
    slots = plan.stages.size() * kSlotsAStage;
    for (std::size_t pass = 0; pass < plan.passes.size(); ++pass) {
      std::vector<std::size_t> members;
      for (std::size_t i = 0; i < entries.size(); ++i) {
        if (plan.stages[entries[i].stage].pass == pass) members.push_back(i);
      }
      programs.emplace_back(plan, entries, members, slots);
    }
  }

  // How much an SM budget slows what computes.
  double slowed(const Batch& batch) const noexcept {
    const bool binds = batch.sm_budget > 0 && batch.sm_budget < plan.sm_count;
    return binds ? static_cast<double>(plan.sm_count) / batch.sm_budget : 1.0;
  }
};

Kernel::Kernel(Plan plan) : compiled_(std::make_unique<const Compiled>(std::move(plan))) {}
Kernel::~Kernel() = default;
Kernel::Kernel(Kernel&&) noexcept = default;
Kernel& Kernel::operator=(Kernel&&) noexcept = default;

const Plan& Kernel::plan() const noexcept { return compiled_->plan; }

Status Kernel::price(const Features& features, const Batch& batch, Estimate& out) const noexcept {
  Sums sums;
  std::fill_n(sums.begin(), compiled_->slots, 0.0);
  compiled_->programs[0].add(features, batch, compiled_->slowed(batch), sums);
  out = compiled_->composition(sums, static_cast<std::int64_t>(features[kScheduled]));
  return Status::ok;
}

Status Kernel::step_time(const Batch& batch, Estimate& out) const noexcept {
  Features features;
  const Status status = aggregate(batch, compiled_->plan.features, features);
  return status == Status::ok ? price(features, batch, out) : status;
}

Status Kernel::explain(const Batch& batch, std::vector<TermCost>& out) const {
  Features features;
  const Status status = aggregate(batch, compiled_->plan.features, features);
  if (status != Status::ok) return status;
  std::array<double, kMaxTerms> earlier;
  const double slowed = compiled_->slowed(batch);
  out.clear();
  for (std::size_t i = 0; i < compiled_->entries.size(); ++i) {
    const Entry& entry = compiled_->entries[i];
    const terms::Cost cost = entry({features, batch, entry.derate ? slowed : 1.0, earlier.data()});
    earlier[i] = cost.own + cost.hbm;
    const double times = entry.count * compiled_->plan.stages[entry.stage].layers;
    out.push_back({&compiled_->plan.terms[i], cost.own * times, cost.hbm * times});
  }
  return status;
}

}  // namespace steppe
