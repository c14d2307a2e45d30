// The reference laws: how a BLIS coefficient set prices a kernel. Pure functions of numbers, seconds and
// bytes.
//
// Most reference laws are affine in one feature once the deployment is known. GEMM, for one: work W per token
// at peak P under the token ramp eff(m) = eps*m/(m + m_half) costs m*W/(P*eff(m)) = W/(P*eps) * (m + m_half).
#pragma once

#include <algorithm>
#include <cmath>

namespace steppe::laws {

// constant + slope*x: GEMM work, weight bytes, cache reads over a rate, elementwise bytes, recurrent tokens.
constexpr double affine(double constant, double slope, double x) noexcept { return constant + slope * x; }

// max(floor + b/transition_rate, b/peak_rate) for b = slope*x bytes: one collective.
constexpr double two_piece(double floor, double transition_slope, double peak_slope, double x) noexcept {
  return std::max(floor + transition_slope * x, peak_slope * x);
}

// Weight bytes of the distinct experts `draws` tokens touch: whole*(1 - ((E-k)/E)^draws), log_miss =
// log((E-k)/E).
inline double touched_experts(double whole, double log_miss, double draws) noexcept {
  return -whole * std::expm1(draws * log_miss);
}

// floor + pairs*work / eff(m): prefill attention under the same token ramp; the derate slows the work only.
constexpr double ramped_prefill(double floor, double work, double m_half, double pairs, double m,
                                double derate) noexcept {
  return floor + pairs * work * (m + m_half) / m * derate;
}

}  // namespace steppe::laws
