// Every law as one variant, lifted from the plan's terms.
#pragma once

#include <cmath>
#include <variant>

#include "steppe/plan.hpp"
#include "terms.hpp"
#include "terms_refined.hpp"

namespace steppe {

using Law = std::variant<terms::Affine, terms::TwoPiece, terms::TouchedExperts, terms::RampedPrefill,
                         terms::BothGates, terms::HostLaunch, terms::ContextGather, terms::GemmTerm,
                         terms::ExpertsTerm, terms::AttentionDecodeTerm, terms::AttentionPrefillTerm,
                         terms::MlaTerm, terms::SparseTerm, terms::ConvContextTerm, terms::ScanContextTerm,
                         terms::TwoProtocolTerm, terms::CurveTerm, terms::HiddenBehind>;

// A term ready to evaluate.
struct Entry {
  Law law;
  terms::Inputs inputs{};
  std::uint8_t input_count = 0;
  double count = 1;
  std::uint16_t stage = 0;
  Resource resource = Resource::sm;
  bool serial = false, derate = false;
  bool ungated = false;  // priced even where its first input is 0

  // Cost of one launch in one layer.
  terms::Cost operator()(const terms::Context& context) const noexcept {
    if (!ungated && !(context.f[inputs[0]] > 0)) return {};
    return std::visit([&](const auto& each) noexcept { return each(context, inputs); }, law);
  }
};

// The terms of a valid plan; throws std::invalid_argument naming the term at fault.
std::vector<Entry> compile(const Plan& plan);

}  // namespace steppe
