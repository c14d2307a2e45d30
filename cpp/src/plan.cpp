#include "steppe/plan.hpp"

#include <cmath>
#include <stdexcept>

namespace steppe {
namespace {

// Bounds that keep every count of the pricing path inside 64 bits, far above what any deployment states.
constexpr std::int64_t kMaxRatio = 1024, kMaxSpan = std::int64_t{1} << 40;
constexpr std::int32_t kMaxRanks = 1 << 15, kMaxStripe = 1 << 20, kMaxRuns = 1024;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("plan: ") + what);
}
bool within(std::int64_t value, std::int64_t low, std::int64_t high) { return value >= low && value <= high; }

void check_features(const FeaturePlan& f) {
  require(kFixedFeatures + f.reads.size() + f.pairs.size() <= kMaxFeatures, "too many feature classes");
  for (const ReadClass& c : f.reads) {
    require(c.limit >= 0, "a read class's limit is negative");
    require(within(c.tail_ratio, 0, kMaxRatio) && within(c.divide, 1, kMaxRatio),
            "a read class's ratio is out of range");
    require(within(c.dcp, 1, kMaxRanks) && within(c.interleave, 1, kMaxStripe),
            "a read class's sharding is out of range");
  }
  for (const PairClass& c : f.pairs) {
    require(within(c.window, 0, kMaxSpan) && within(c.slack, 0, kMaxSpan) && within(c.select, 0, kMaxSpan),
            "a prefill class's span is out of range");
    require(within(c.ratio, 1, kMaxRatio), "a prefill class's ratio is out of range");
  }
  require(within(f.pcp, 1, kMaxRanks), "pcp is out of range");
  require(within(f.funnel, 1, kMaxStripe), "funnel is out of range");
  for (std::size_t i = 0; i < f.capture_sizes.size(); ++i) {
    require(f.capture_sizes[i] > (i > 0 ? f.capture_sizes[i - 1] : 0), "capture sizes must ascend from 1");
  }
  require(f.capture_ceiling >= 0 && f.max_model_len >= 0 && f.uniform_width >= 0,
          "a feature setting is negative");
}

}  // namespace

void validate(const Plan& plan) {
  check_features(plan.features);
  require(plan.sm_count >= 0, "sm_count is negative");
  require(!plan.stages.empty(), "no stages");
  require(plan.stages.size() <= kMaxStages, "too many stages");
  require(plan.terms.size() <= kMaxTerms, "too many terms");
  require(!plan.passes.empty() && plan.passes.size() <= kMaxPasses, "no passes or too many");
  for (const Pass& pass : plan.passes) {
    if (const char* why = objection(pass))
      throw std::invalid_argument(std::string("plan: a draft pass: ") + why);
    require(pass.count <= kMaxRuns, "a draft pass runs too often");
  }
  std::uint16_t last = 0;
  for (const Stage& stage : plan.stages) {
    require(stage.layers >= 0 && std::isfinite(stage.layers),
            "a stage's layers must be finite and not negative");
    require(stage.pass < plan.passes.size(), "a stage belongs to no pass");
    require(stage.pass >= last, "stages must follow the order of their passes");
    last = stage.pass;
  }
  for (std::size_t i = 1; i < plan.terms.size(); ++i) {
    require(plan.terms[i - 1].stage <= plan.terms[i].stage, "terms must follow the order of their stages");
  }
}

}  // namespace steppe
