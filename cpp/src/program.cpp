#include "program.hpp"

#include <algorithm>
#include <stdexcept>

namespace steppe {
namespace {

// The one row count an entry reads beside kUnpadded, or kFixedFeatures where it reads anything else.
std::uint16_t row_count_of(const Entry& e, bool& reads_unpadded) noexcept {
  static_assert(kFixedFeatures < 64);
  constexpr std::uint64_t row_counts = 1u << kTokens | 1u << kPaddedTokens | 1u << kDecodeTokens |
                                       1u << kContextRows | 1u << kSampledRows | 1u << kGroupRows;
  if (std::holds_alternative<terms::HostLaunch>(e.law) ||
      std::holds_alternative<terms::ContextGather>(e.law)) {
    return kFixedFeatures;  // read more than features
  }
  std::uint16_t found = kFixedFeatures;
  for (std::size_t i = 0; i < e.input_count; ++i) {
    const std::uint16_t input = e.inputs[i];
    if (input == kUnpadded && i > 0) {
      reads_unpadded = true;
    } else if (input >= kFixedFeatures || (row_counts >> input & 1) == 0 ||
               (found != kFixedFeatures && found != input)) {
      return kFixedFeatures;
    } else {
      found = input;
    }
  }
  return found;
}

}  // namespace

Program::Program(const Plan& plan, std::span<const Entry> entries, std::size_t pass) : draft_(pass > 0) {
  const auto of_pass = [&](const Stage& stage) { return stage.pass == pass; };
  const auto first = std::find_if(plan.stages.begin(), plan.stages.end(), of_pass);
  first_stage_ = static_cast<std::uint16_t>(first - plan.stages.begin());
  for (auto stage = first; stage != plan.stages.end() && of_pass(*stage); ++stage)
    layers_.push_back(stage->layers);
  slots_ = layers_.size() * kSlotsAStage;

  std::vector<std::vector<std::uint16_t>> sides(entries.size());
  const auto mine = [&](const Entry& e) { return plan.stages[e.stage].pass == pass; };
  const auto hides = [](const Entry& e) { return std::holds_alternative<terms::HiddenBehind>(e.law); };
  for (const Entry& entry : entries) {
    if (mine(entry) && hides(entry)) hide(entry, sides);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (mine(entries[i]) && !hides(entries[i])) place(entries[i], std::move(sides[i]));
  }
  for (Group& group : groups_) group.tabulate(plan.features);
}

std::uint16_t Program::slot_of(const Entry& e, Resource resource) const noexcept {
  const std::size_t stage = static_cast<std::size_t>(e.stage - first_stage_),
                    side = e.serial ? kResources : 0;
  return static_cast<std::uint16_t>(stage * kSlotsAStage + side + static_cast<std::size_t>(resource));
}

// A hidden term compares two sums: every term it names adds to one of them as well.
void Program::hide(const Entry& entry, std::vector<std::vector<std::uint16_t>>& sides) {
  if (hidden_.size() == kMaxHidden) throw std::invalid_argument("plan: too many hidden terms");
  const auto& law = std::get<terms::HiddenBehind>(entry.law);
  const auto hidden = static_cast<std::uint16_t>(slots_++), behind = static_cast<std::uint16_t>(slots_++);
  for (std::size_t k = law.first; k <= law.last; ++k) sides[k].push_back(hidden);
  sides[law.behind].push_back(behind);
  hidden_.push_back({entry, slot_of(entry, entry.resource), hidden, behind});
}

Program::Part& Program::part_of(const Entry& entry) {
  bool reads_unpadded = false;
  const std::uint16_t feature = row_count_of(entry, reads_unpadded);
  if (feature == kFixedFeatures) return rest_;
  auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.feature == feature; });
  if (group == groups_.end()) {
    group = groups_.emplace(groups_.end());
    group->feature = feature;
  }
  group->reads_unpadded |= reads_unpadded;
  return group->part;
}

void Program::place(const Entry& entry, std::vector<std::uint16_t> sides) {
  Part& part = part_of(entry);
  const std::uint16_t own = slot_of(entry, entry.resource);
  const auto* affine = std::get_if<terms::Affine>(&entry.law);
  if (!affine || !sides.empty()) {
    part.works.push_back({entry, own, slot_of(entry, Resource::hbm), std::move(sides)});
    return;
  }
  const Line line{entry.inputs[0],
                  entry.inputs[1],
                  own,
                  entry.derate,
                  affine->constant * entry.count,
                  affine->slope * entry.count};
  const auto same = std::find_if(part.lines.begin(), part.lines.end(), [&](const Line& other) {
    return other.gate == line.gate && other.x == line.x && other.slot == line.slot &&
           other.derate == line.derate;
  });
  if (same == part.lines.end()) {
    part.lines.push_back(line);
  } else {
    same->constant += line.constant;
    same->slope += line.slope;
  }
}

void Program::Part::add(const Features& f, const Batch& batch, double slowed, Sums& sums) const noexcept {
  for (const Line& line : lines) {
    if (f[line.gate] > 0)
      sums[line.slot] += (line.constant + line.slope * f[line.x]) * (line.derate ? slowed : 1.0);
  }
  for (const Work& work : works) {
    const terms::Cost cost = work.entry({f, batch, work.entry.derate ? slowed : 1.0, nullptr});
    sums[work.own] += cost.own * work.entry.count;
    sums[work.hbm] += cost.hbm * work.entry.count;
    for (const std::uint16_t side : work.sides) sums[side] += cost.own + cost.hbm;
  }
}

// Tabulates the group where that saves more than a few affine lines: the captured sizes where the feature is
// padded to them, else each count up to the largest of them, within a budget of evaluations.
void Program::Group::tabulate(const FeaturePlan& plan) {
  constexpr std::int64_t largest = 1024, budget = 8192;
  if (part.works.empty()) return;
  const auto terms = static_cast<std::int64_t>(part.works.size());
  step = feature == kGroupRows ? plan.funnel : 1;
  const bool graphs = plan.pad_to_capture && !plan.capture_sizes.empty();
  const bool captured = feature == kPaddedTokens && graphs;
  unpadded = !graphs;
  const std::int64_t ceiling = graphs ? plan.capture_sizes.back() : largest;
  const std::int64_t last = std::min({ceiling, largest, captured ? largest : budget / terms});
  for (const Work& work : part.works) slots.insert(slots.end(), {work.own, work.hbm});
  for (const Work& work : part.works) slots.insert(slots.end(), work.sides.begin(), work.sides.end());
  for (const Line& line : part.lines) slots.push_back(line.slot);
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());

  row_of.assign(static_cast<std::size_t>(last) + 1, 0);
  Features f{};
  f.value[kUnpadded] = unpadded;
  std::uint16_t row = 0;
  for (std::int64_t count = 1; count <= last; ++count) {
    if (captured && captured_size(count, plan.capture_sizes) != count) continue;
    f.value[feature] = static_cast<double>(count * step);
    Sums sums{};
    part.add(f, Batch{}, 1.0, sums);
    for (const std::uint16_t slot : slots) rows.push_back(sums[slot]);
    row_of[static_cast<std::size_t>(count)] = ++row;
  }
}

const double* Program::Group::find(const Features& f) const noexcept {
  if (row_of.empty() || (reads_unpadded && (f[kUnpadded] > 0) != unpadded)) return nullptr;
  auto count = static_cast<std::int64_t>(f[feature]);
  if (step > 1) {
    if (count % step != 0) return nullptr;
    count /= step;
  }
  if (count >= static_cast<std::int64_t>(row_of.size())) return nullptr;
  const std::size_t row = row_of[static_cast<std::size_t>(count)];
  return row > 0 ? rows.data() + (row - 1) * slots.size() : nullptr;
}

void Program::Group::add(const Features& f, const Batch& batch, double slowed, Sums& sums) const noexcept {
  if (!(f[feature] > 0)) return;
  const double* row = slowed == 1.0 ? find(f) : nullptr;
  if (!row) return part.add(f, batch, slowed, sums);
  for (std::size_t i = 0; i < slots.size(); ++i) sums[slots[i]] += row[i];
}

void Program::price(const Features& f, const Batch& batch, double slowed, double runs,
                    Totals& totals) const noexcept {
  Sums sums;
  std::fill_n(sums.begin(), slots_, 0.0);
  for (const Group& group : groups_) group.add(f, batch, slowed, sums);
  rest_.add(f, batch, slowed, sums);
  for (const Hidden& hidden : hidden_) {
    const auto& law = std::get<terms::HiddenBehind>(hidden.entry.law);
    const double rows = f[hidden.entry.inputs[0]];
    if (rows > 0)
      sums[hidden.own] += law.of(rows, sums[hidden.hidden], sums[hidden.behind]) * hidden.entry.count;
  }
  compose(sums, runs, totals);
}

// Inside a stage the resources run side by side and serial terms follow; stages follow one another; host time
// adds to everything.
void Program::compose(const Sums& sums, double runs, Totals& totals) const noexcept {
  const double* at = sums.data();
  for (const double layers : layers_) {
    const double* concurrent = at;
    const double* serial = at + kResources;
    at += kSlotsAStage;
    const double longest =
        std::max({0.0, std::max(concurrent[0], concurrent[1]), std::max(concurrent[2], concurrent[3])});
    const double times = layers * runs;
    double tail = concurrent[4], sum = 0;
    for (std::size_t r = 0; r < kResources; ++r) {
      const double both = concurrent[r] + serial[r];
      tail += serial[r];
      sum += both;
      totals.resource[r] += times * both;
    }
    totals.overlap += times * (longest + tail);
    if (draft_) totals.draft += times * sum;
  }
}

namespace {

// Truncates, and saturates far beyond any step so that sums of resources stay in range.
std::int64_t nanoseconds(double seconds) noexcept {
  constexpr double most = 1e9;  // seconds
  return static_cast<std::int64_t>((seconds < most ? std::max(seconds, -most) : most) * 1e9);
}

}  // namespace

Estimate estimate(const Totals& totals, std::int64_t tokens) noexcept {
  Estimate e;
  e.tokens = tokens;
  for (std::size_t r = 0; r < kResources; ++r) {
    e.resource_ns[r] = nanoseconds(totals.resource[r]);
    e.no_overlap_ns += e.resource_ns[r];
    if (e.resource_ns[r] > e.resource_ns[e.bottleneck]) e.bottleneck = static_cast<std::uint8_t>(r);
  }
  e.overlap_ns = std::min(nanoseconds(totals.overlap), e.no_overlap_ns);
  e.draft_ns = std::min(nanoseconds(totals.draft), e.no_overlap_ns);
  return e;
}

}  // namespace steppe
