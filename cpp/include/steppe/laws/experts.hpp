// Refined MoE law: one layer's routed experts on one rank, routing to combine, all-to-all apart.
// Microseconds.
//
//   T = fixed + moved + sqrt(Tc^2 + Tm^2)
//   P = token-expert pairs on the busiest rank, A = experts it touches (closed-form routing statistics)
//   Tc = min over tiles t of max(A*t, P + A*(t-1)/2) * (1 + tile0/t) * 2*mats*I*H / (peak*eff)
//   Tm = A*mats*I*H*w / (bandwidth*bw_eff)
//
// Fitted by `steppe calibrate` (moe). Sees the tensor-sliced experts directly.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

namespace steppe::laws {

struct Routing {
  double pairs;    // P
  double touched;  // A
};

struct Experts {
  double experts = 1, top_k = 1, ep = 1;
  double local = 1;          // L, experts a rank holds
  double spread = 0;         // g = 0.62*log2(ep)^0.75: busiest of ep ranks, in standard deviations
  double concentration = 0;  // v_touch in [0, 1]: 0 uniform routing, 1 the collector's power law
  double load_variance = 0;  // v_load: squared coefficient of variation of expert popularity
  double log_miss = 0;       // log(1 - k/E), for uniform coverage
  double flop_us = 0;        // 2*mats*I*H/(peak*eff)
  double expert_us = 0;      // mats*I*H*w/(bandwidth*bw_eff)
  double tile0 = 0;
  double t0 = 0, t_ramp = 0;  // t0 carries c_dim*(H+I)/1000 + c_loc*L
  double token_us = 0;        // c_tok*H/1e6 + c_route*k/1000
  double pair_us = 0;         // (c_row*H + c_act*I*(mats-1))/1e6
  bool all_pairs = false;     // the kernel walks every rank's pairs (Triton), not the local ones

  Routing route(double tokens) const noexcept {
    const double mean = tokens * top_k / experts;
    double busy = 1;
    if (spread > 0) busy += spread * std::sqrt(load_variance / local + ep / (tokens * top_k));
    const double pairs = std::clamp(busy * mean * local, 1.0, std::max(1.0, tokens * std::min(top_k, local)));
    double touched;
    if (concentration <= 0) {
      touched = top_k >= experts ? local : -local * std::expm1(log_miss * pairs * experts / (top_k * local));
    } else if (concentration == 0.5) {  // the default, without a pow
      const double base = 1 + 0.5 * pairs / local;
      touched = local * (1 - 1 / (base * base));
    } else {
      touched = local * (1 - std::pow(1 + concentration * pairs / local, -1 / concentration));
    }
    return {pairs, concentration <= 0 ? touched : std::min(pairs, touched)};
  }
  double compute_us(const Routing& r) const noexcept {
    double rows = 1e300;
    for (const double t : {16.0, 32.0, 64.0, 128.0}) {
      rows = std::min(rows, std::max(r.touched * t, r.pairs + r.touched * (t - 1) / 2) * (1 + tile0 / t));
    }
    return rows * flop_us;
  }
  double memory_us(const Routing& r) const noexcept { return r.touched * expert_us; }
  double fixed_us(double tokens, const Routing& r) const noexcept {
    return t0 + t_ramp * tokens / (tokens + 16) + token_us * tokens +
           pair_us * (all_pairs ? tokens * top_k : r.pairs);
  }
};

}  // namespace steppe::laws
