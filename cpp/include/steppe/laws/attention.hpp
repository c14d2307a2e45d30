// Refined attention laws, full and sliding window: paged decode and varlen prefill on one rank. Microseconds.
//
// Decode: t = F + F1*sat + F2*wide + F3*swap + tb*N + sqrt(t_item^2 + t_mem^2)
//   I = N*g items; t_item = I*(seg*(t0 + t1*d) + t2*d*rows + tq*N); t_mem = bytes / 4-norm minimum of HBM and
//   CTA rates
// Prefill: t = F + F1*qmax^2/(qmax^2 + 256^2) + t_kvw + t_io + (t_work^1.5 + t_chain^1.5 + t_mem^1.5)^(2/3)
//
// The level-two cache switch of the measured tables is off: in serving each layer's cache is cold.
// Fitted by `steppe calibrate` (attention).
#pragma once

#include <algorithm>
#include <cmath>

namespace steppe::laws {

struct DecodeBatch {
  double requests;  // N
  double keys;      // K, tokens read over all requests
  double longest;   // Lmax
  double rows;      // query rows over all requests (N unless tokens are verified)
};

struct AttentionDecode {
  double n = 1, g = 1, d = 128, element_bytes = 2;  // heads of this rank, head size, cache width
  double sms = 132, hbm = 1;                        // bytes/us
  double F = 0, F1 = 0, F2 = 0, F3 = 0, t0 = 0, t1 = 0, t2 = 0, tb = 0, tq = 0, u = 1, r = 1, S = 1;
  bool wide = false;      // path extra for wide query groups
  bool swaps = false;     // layout copies once several requests run (FA2)
  bool unpacked = false;  // FA2 with a window: one item a query head
  bool never_splits = false;
  bool triton = false;  // splits into 16 segments until requests * kv heads exceed 128

  double floor_us(const DecodeBatch& b) const noexcept {
    const double l2 = b.longest * b.longest;
    const double sat = nosplit(b) ? 0 : l2 / (l2 + 300.0 * 300.0);
    return F + F1 * sat + (wide ? F2 : 0) + (swaps && b.requests > 1 ? F3 : 0);
  }
  double work_us(const DecodeBatch& b) const noexcept {
    return tb * b.requests + std::hypot(item_us(b), memory_us(b));
  }
  double item_us(const DecodeBatch& b) const noexcept {
    const double packed = unpacked ? 1 : n / g;
    const double rows = packed * b.rows / b.requests;
    const double seg = triton && !nosplit(b) ? 16 : 1;
    const double items = b.requests * (unpacked ? n : g) * (unpacked ? 1 : std::ceil(rows / 128));
    return items * (seg * (t0 + t1 * d) + t2 * d * rows + tq * b.requests);
  }
  double memory_us(const DecodeBatch& b) const noexcept {
    const double heads = unpacked ? n : g;
    const double bytes = 2 * b.keys * heads * d * element_bytes;
    const bool whole = nosplit(b);
    const double ctas = std::min(
        sms, whole ? b.requests * heads : heads * std::min(S * b.requests, b.requests + b.keys / 128));
    const double c2 = (r * ctas) * (r * ctas), h2 = (u * hbm) * (u * hbm);
    const double rate = std::sqrt(std::sqrt(c2 * c2 / (c2 * c2 + h2 * h2)) * std::sqrt(h2 * h2));
    const double slowest =
        b.longest * 2 * d * element_bytes / (r * (whole ? 1 : std::min(S, 1 + b.longest / 128)));
    return std::max(bytes / rate, slowest);
  }
  bool nosplit(const DecodeBatch& b) const noexcept {
    return never_splits || (triton && b.requests * g > 128);
  }
};

struct PrefillBatch {
  double requests, tokens, pairs;  // N, Q, A
  double visible, longest_chunk;   // Lmax, qmax
  double cached_keys;              // K of chunks that continue a cached prefix
};

struct AttentionPrefill {
  double n = 1, g = 1, d = 128, element_bytes = 2, hbm = 1;
  double F = 0, F1 = 0, a0 = 0, a1 = 0, r0 = 0, r1 = 0, tg = 0, tn = 0, tc0 = 0, tc1 = 0, rk = 0, v = 1,
         C = 1;

  double fixed_us(const PrefillBatch& b) const noexcept {
    const double q2 = b.longest_chunk * b.longest_chunk;
    const double io = b.tokens * d * (4 * n + 8 * g);
    const double ratio = C / io, r2 = ratio * ratio;
    return F + F1 * q2 / (q2 + 256.0 * 256.0) + rk * b.tokens * g * d + io / (v * hbm) / (1 + r2 * r2);
  }
  double compute_us(const PrefillBatch& b) const noexcept {
    return n * (b.pairs * (a0 + a1 * d) + b.tokens * (r0 + r1 * d)) + b.requests * (tg * g + tn * n);
  }
  double chain_us(const PrefillBatch& b) const noexcept { return b.visible * (tc0 + tc1 * d); }
  double memory_us(const PrefillBatch& b) const noexcept {
    return 2 * b.cached_keys * g * d * element_bytes / (0.85 * hbm);
  }
};

// (a^1.5 + b^1.5 + c^1.5)^(2/3)
inline double norm_three_halves(double a, double b, double c) noexcept {
  const double sum = a * std::sqrt(a) + b * std::sqrt(b) + c * std::sqrt(c);
  const double root = std::cbrt(sum);
  return root * root;
}

}  // namespace steppe::laws
