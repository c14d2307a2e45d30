// Refined laws of whole latent-attention blocks (projections, norms, rope, cache write, attention, output
// projection) of one layer, as the module tables time them: MLA, and sparse selections (DSA, MSA, CSA, HCA).
// Microseconds.
//
//   projections(T, h) = F + sqrt((w1*h)^2 + (T*(c0 + c1*h))^2)
//   MLA decode        = F1*L^2/(L^2 + L1^2) + sqrt((bytes/R)^2 + (K*(k0 + k1*h))^2)
//   MLA context       = F1*L^2/(L^2 + 256^2) + ((h*(A*al + N*ts))^1.5 + (L*tc)^1.5)^(2/3)
//   sparse            = F1*L^2/(L^2 + 64^2) + N*ts + sqrt((S*(k0 + k1*h))^2 + (sel(L)*kc)^2)
//                       + Fi + Q*i0 + sqrt((A*i1)^2 + (idx(L)*i2)^2)
//
// Fitted by `steppe calibrate` (mla, sparse).
#pragma once

#include <algorithm>
#include <cmath>

#include "steppe/laws/attention.hpp"

namespace steppe::laws {

struct Projections {
  double h = 1;  // query heads of this rank
  double F = 0, w1 = 0, c0 = 0, c1 = 0;
  double us(double tokens) const noexcept { return F + std::hypot(w1 * h, tokens * (c0 + c1 * h)); }
};

struct MlaDecode {
  double h = 1, element_bytes = 2, sms = 132, hbm = 1;
  double F1 = 0, L1 = 1, k0 = 0, k1 = 0, u = 1, r = 1, S = 1;

  double fixed_us(const DecodeBatch& b) const noexcept {
    const double l2 = b.longest * b.longest;
    return F1 * l2 / (l2 + L1 * L1);
  }
  double compute_us(const DecodeBatch& b) const noexcept {
    return b.keys * (k0 + k1 * h) * b.rows / b.requests;
  }
  double memory_us(const DecodeBatch& b) const noexcept {
    const double ctas =
        std::min(sms, std::ceil(h / 128) * std::min(S * b.requests, b.requests + b.keys / 64));
    const double c2 = (r * ctas) * (r * ctas), h2 = (u * hbm) * (u * hbm);
    const double rate = std::sqrt(std::sqrt(c2 * c2 / (c2 * c2 + h2 * h2)) * std::sqrt(h2 * h2));
    return b.keys * 576 * element_bytes / rate;
  }
};

struct MlaContext {
  double h = 1, F1 = 0, al = 0, ts = 0, tc = 0;
  double us(const PrefillBatch& b) const noexcept {
    const double l2 = b.visible * b.visible;
    return F1 * l2 / (l2 + 256.0 * 256.0) +
           norm_three_halves(h * (b.pairs * al + b.requests * ts), b.visible * tc, 0);
  }
};

struct SparseBatch {
  double requests, tokens;          // N, Q
  double selected, scored;          // S, A
  double selected_max, scored_max;  // sel(Lmax), idx(Lmax)
  double longest;                   // Lmax
};

struct Sparse {
  double h = 1, k0 = 0, k1 = 0, kc = 0, ts = 0, F1 = 0, Fi = 0, i0 = 0, i1 = 0, i2 = 0;
  double us(const SparseBatch& b) const noexcept {
    const double l2 = b.longest * b.longest;
    return F1 * l2 / (l2 + 64.0 * 64.0) + b.requests * ts +
           std::hypot(b.selected * (k0 + k1 * h), b.selected_max * kc) + Fi + b.tokens * i0 +
           std::hypot(b.scored * i1, b.scored_max * i2);
  }
};

}  // namespace steppe::laws
