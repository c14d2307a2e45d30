#include "steppe/kernel.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <variant>

#include "terms.hpp"
#include "terms_refined.hpp"

namespace steppe {
namespace {

using Law = std::variant<terms::Affine, terms::TwoPiece, terms::TouchedExperts, terms::RampedPrefill,
                         terms::BothGates, terms::HostLaunch, terms::ContextGather, terms::GemmTerm,
                         terms::ExpertsTerm, terms::AttentionDecodeTerm, terms::AttentionPrefillTerm, terms::MlaTerm,
                         terms::SparseTerm, terms::ConvContextTerm, terms::ScanContextTerm, terms::TwoProtocolTerm,
                         terms::CurveTerm, terms::HiddenBehind>;

template <class Visit, std::size_t... I>
void each_law(Visit&& visit, std::index_sequence<I...>) {
  (visit(std::in_place_type<std::variant_alternative_t<I, Law>>), ...);
}
template <class Visit>
void each_law(Visit&& visit) {
  each_law(visit, std::make_index_sequence<std::variant_size_v<Law>>{});
}

[[noreturn]] void refuse(const Term& term, const std::string& why) {
  throw std::invalid_argument("term '" + term.name + "' (law " + term.law + "): " + why);
}

Law lift(const Term& term) {
  std::unique_ptr<Law> law;
  each_law([&]<class T>(std::in_place_type_t<T>) {
    if (law || term.law != T::name) return;
    if constexpr (std::is_same_v<T, terms::CurveTerm>) {
      const std::size_t numbers = term.params.size();
      if (numbers < T::kHead + 2 || numbers % 2 != 0) refuse(term, "needs its head and at least one (bytes, us) point");
    } else if (term.params.size() != T::params.size()) {
      refuse(term, "takes " + std::to_string(T::params.size()) + " parameters, not " + std::to_string(term.params.size()));
    }
    if (term.inputs.size() != T::inputs.size()) {
      refuse(term, "reads " + std::to_string(T::inputs.size()) + " features, not " + std::to_string(term.inputs.size()));
    }
    for (std::size_t i = 0; i < term.params.size(); ++i) {
      if (!std::isfinite(term.params[i])) {
        refuse(term, std::string("parameter ") + T::params[std::min(i, T::params.size() - 1)] + " is not finite");
      }
    }
    law = std::make_unique<Law>(T(term.params));
  });
  if (!law) refuse(term, "no such law");
  return *law;
}

}  // namespace

const std::vector<LawInfo>& laws_table() {
  static const std::vector<LawInfo> table = [] {
    std::vector<LawInfo> laws;
    each_law([&laws]<class T>(std::in_place_type_t<T>) {
      laws.push_back({T::name, {T::params.begin(), T::params.end()}, {T::inputs.begin(), T::inputs.end()}});
    });
    return laws;
  }();
  return table;
}

struct Kernel::Compiled {
  struct Entry {
    Law law;
    terms::Inputs inputs{};
    double count;
    std::uint16_t stage;
    Resource resource;
    bool serial, derate, ungated;
  };
  Plan plan;
  std::vector<Entry> entries;       // by stage
  std::vector<std::size_t> begins;  // first entry of each pass, and the end of the last

  explicit Compiled(Plan given) : plan(std::move(given)) {
    if (plan.features.count() > kMaxFeatures) throw std::invalid_argument("plan: too many feature classes");
    if (plan.terms.size() > kMaxTerms) throw std::invalid_argument("plan: too many terms");
    const auto by_stage = [](const Term& a, const Term& b) { return a.stage < b.stage; };
    if (!std::is_sorted(plan.terms.begin(), plan.terms.end(), by_stage)) {
      throw std::invalid_argument("plan: terms must follow the order of their stages");
    }
    for (const Term& term : plan.terms) entries.push_back(compile(term));
    order_passes();
  }

  // Each pass is a run of terms of its own, the target's first.
  void order_passes() {
    if (plan.passes.empty()) throw std::invalid_argument("plan: no passes; the first is the target's forward");
    for (const Pass& pass : plan.passes) {
      if (const char* why = objection(pass)) throw std::invalid_argument(std::string("plan: a draft pass: ") + why);
    }
    std::uint16_t last = 0;
    for (const Stage& stage : plan.stages) {
      if (stage.pass >= plan.passes.size()) throw std::invalid_argument("plan: stage '" + stage.name + "' belongs to no pass");
      if (stage.pass < last) throw std::invalid_argument("plan: stages must follow the order of their passes");
      last = stage.pass;
    }
    for (std::size_t pass = 0; pass <= plan.passes.size(); ++pass) {
      const auto before = [&](const Entry& e) { return plan.stages[e.stage].pass < pass; };
      begins.push_back(static_cast<std::size_t>(std::count_if(entries.begin(), entries.end(), before)));
    }
  }

  Entry compile(const Term& term) const {
    if (term.stage >= plan.stages.size()) refuse(term, "stage out of range");
    if (!(term.count >= 0) || !std::isfinite(term.count)) refuse(term, "count must be finite and not negative");
    Entry entry{lift(term), {}, term.count, term.stage, term.resource, term.serial, term.derate,
                term.law == terms::HostLaunch::name};
    for (std::size_t i = 0; i < term.inputs.size(); ++i) {
      if (term.inputs[i] >= plan.features.count()) refuse(term, "feature out of range");
      entry.inputs[i] = term.inputs[i];
    }
    if (const auto* hidden = std::get_if<terms::HiddenBehind>(&entry.law)) {
      const std::size_t here = entries.size();
      if (hidden->first > hidden->last || hidden->last >= here || hidden->behind >= here) {
        refuse(term, "refers to terms that do not come before it");
      }
    }
    return entry;
  }

  double derate(const Batch& batch) const noexcept {
    const bool binds = batch.sm_budget > 0 && batch.sm_budget < plan.sm_count;
    return binds ? static_cast<double>(plan.sm_count) / batch.sm_budget : 1.0;
  }

  // Calls sink(entry index, entry, cost of all launches in one layer) for every term of a pass, in plan order. `runs`
  // identical runs are charged at once.
  template <class Sink>
  void evaluate(std::size_t pass, double runs, const Features& f, const Batch& batch, Sink&& sink) const noexcept {
    double earlier[kMaxTerms];
    const double slowed = derate(batch);
    for (std::size_t i = begins[pass]; i < begins[pass + 1]; ++i) {
      const Entry& entry = entries[i];
      terms::Cost cost;
      if (entry.ungated || f[entry.inputs[0]] > 0) {
        const terms::Context context{f, batch, entry.derate ? slowed : 1.0, earlier};
        cost = std::visit([&](const auto& law) noexcept { return law(context, entry.inputs); }, entry.law);
      }
      earlier[i] = cost.own + cost.hbm;
      sink(i, entry, terms::Cost{cost.own * entry.count * runs, cost.hbm * entry.count * runs});
    }
  }

  // The drafter's passes, after the target's forward; none where no request runs.
  //
  // COVERAGE LIMIT: draft passes run this rank's own rows, without the data-parallel lockstep pad that the target's
  // forward carries. The engine pads them across the group as well: pass 0 of an autoregressive drafter starts from the
  // target's agreed token count (vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py:287-301), and the uniform
  // passes run as many requests as the busiest rank on every rank, eager or not
  // (vllm/v1/worker/gpu/spec_decode/speculator.py:500-517, vllm/v1/worker/gpu/dp_utils.py:200-210). A rank with fewer
  // requests than the busiest is charged too little for drafting.
  template <class Sink>
  void price_draft(const Features& target, const Batch& batch, Sink&& sink) const noexcept {
    if (target[kRequests] <= 0) return;
    Features features;
    for (std::size_t pass = 1; pass < plan.passes.size(); ++pass) {
      const Pass& draft = plan.passes[pass];
      const std::int32_t runs = draft.grows ? draft.count : 1;
      for (std::int32_t run = 0; run < runs; ++run) {
        draft_features(batch, plan.features, draft, run, target, features);
        evaluate(pass, draft.grows ? 1.0 : draft.count, features, batch, sink);
      }
    }
  }

  template <class Sink>
  void evaluate_all(const Features& f, const Batch& batch, Sink&& sink) const noexcept {
    evaluate(0, 1.0, f, batch, sink);
    if (plan.passes.size() > 1) price_draft(f, batch, sink);
  }

  static constexpr std::size_t kMaxTerms = 1024;
};

namespace {

std::int64_t nanoseconds(double seconds) noexcept { return static_cast<std::int64_t>(seconds * 1e9); }

// Sums terms into resources, and stages into the overlapped total: inside a stage the resources run side by side
// and serial terms follow; stages follow one another; host time adds to everything.
class Composition {
 public:
  explicit Composition(const Plan& plan) noexcept : plan_(plan) {}

  void add(std::size_t entry, std::uint16_t stage, Resource resource, bool serial, double own, double hbm) noexcept {
    if (stage != stage_ || entry <= entry_) close(stage);  // another stage, or the same one run again
    entry_ = entry;
    auto& side = serial ? serial_ : concurrent_;
    side[static_cast<std::size_t>(resource)] += own;
    side[static_cast<std::size_t>(Resource::hbm)] += hbm;
  }

  Estimate finish(std::int64_t tokens) noexcept {
    close(stage_);
    Estimate e;
    e.tokens = tokens;
    for (std::size_t r = 0; r < kResources; ++r) {
      e.resource_ns[r] = nanoseconds(total_[r]);
      e.no_overlap_ns += e.resource_ns[r];
      if (e.resource_ns[r] > e.resource_ns[e.bottleneck]) e.bottleneck = static_cast<std::uint8_t>(r);
    }
    e.overlap_ns = std::min(nanoseconds(overlap_), e.no_overlap_ns);
    e.draft_ns = std::min(nanoseconds(draft_), e.no_overlap_ns);
    return e;
  }

 private:
  void close(std::uint16_t next) noexcept {
    const Stage& stage = plan_.stages[stage_];
    const double layers = stage.layers;
    double longest = 0, tail = concurrent_[4], sum = 0;  // host never overlaps
    for (std::size_t r = 0; r < kResources; ++r) {
      if (r < 4) longest = std::max(longest, concurrent_[r]);
      tail += serial_[r];
      sum += concurrent_[r] + serial_[r];
      total_[r] += layers * (concurrent_[r] + serial_[r]);
    }
    overlap_ += layers * (longest + tail);
    if (stage.pass > 0) draft_ += layers * sum;
    concurrent_ = serial_ = {};
    stage_ = next;
  }

  const Plan& plan_;
  std::uint16_t stage_ = 0;
  std::size_t entry_ = 0;
  std::array<double, kResources> concurrent_{}, serial_{}, total_{};
  double overlap_ = 0, draft_ = 0;
};

}  // namespace

Kernel::Kernel(Plan plan) : compiled_(std::make_unique<const Compiled>(std::move(plan))) {
  if (this->plan().stages.empty()) throw std::invalid_argument("plan: no stages");
}
Kernel::~Kernel() = default;
Kernel::Kernel(Kernel&&) noexcept = default;
Kernel& Kernel::operator=(Kernel&&) noexcept = default;

const Plan& Kernel::plan() const noexcept { return compiled_->plan; }

Status Kernel::price(const Features& features, const Batch& batch, Estimate& out) const noexcept {
  Composition composition(compiled_->plan);
  compiled_->evaluate_all(features, batch, [&](std::size_t i, const Compiled::Entry& e, terms::Cost cost) noexcept {
    composition.add(i, e.stage, e.resource, e.serial, cost.own, cost.hbm);
  });
  out = composition.finish(static_cast<std::int64_t>(features[kScheduled]));
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
  out.clear();
  out.reserve(compiled_->entries.size());
  for (const Term& term : compiled_->plan.terms) out.push_back({&term, 0, 0});
  compiled_->evaluate_all(features, batch, [&](std::size_t i, const Compiled::Entry& e, terms::Cost cost) {
    const double layers = compiled_->plan.stages[e.stage].layers;
    out[i].own_s += cost.own * layers;
    out[i].hbm_s += cost.hbm * layers;
  });
  return status;
}

}  // namespace steppe
