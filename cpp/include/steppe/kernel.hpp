// A kernel: a validated plan, ready to price batches. Immutable after construction; pricing neither
// allocates, locks nor throws, and may run from any number of threads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "steppe/batch.hpp"
#include "steppe/estimate.hpp"
#include "steppe/plan.hpp"

namespace steppe {

// One named line of a breakdown; `seconds` covers every launch and layer of the term.
struct TermCost {
  const Term* term;
  double own_s;
  double hbm_s;
};

// One run of a draft pass, charged `times` times.
struct DraftRun {
  std::size_t pass;
  std::int32_t run;
  double times;
};

class Kernel {
 public:
  explicit Kernel(Plan plan);  // throws std::invalid_argument naming the term at fault
  ~Kernel();
  Kernel(Kernel&&) noexcept;
  Kernel& operator=(Kernel&&) noexcept;

  const Plan& plan() const noexcept;

  Status step_time(const Batch& batch, Estimate& out) const noexcept;
  // Prices from features a caller keeps (RunningBatch): the target's, and one entry a draft run. `settings`
  // lends its SM budget; the batch must decode alone.
  void price(const Features& target, std::span<const Features> drafts, const Batch& settings,
             Estimate& out) const noexcept;
  std::span<const DraftRun> draft_runs() const noexcept;
  // The same evaluation term by term; allocates.
  Status explain(const Batch& batch, std::vector<TermCost>& out) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace steppe
