// Refined laws of recurrent mixers (GDN, KDA, Mamba-2): a causal convolution and a scan of one layer.
// Microseconds.
//
//   conv, context:  F + tn*N*ch + Q*ch*(tq + t2*[N>1]) + io/(v*hbm)/(1 + (C/io)^4),  io = 4*Q*ch
//   conv, decode:   F + Q*ch*20/(u*hbm)
//   scan, context:  F + ts*N*H + ((tc*L)^1.5 + (tw*H*Qc)^1.5)^(2/3) + w0*Qc + io/(v*hbm)/(1 + (C/io)^4)
//   scan, decode:   F + ts*N*H + N*state_bytes/(u*hbm), state read and written
//
// Fitted by `steppe calibrate` (recurrent). N requests, Q rows, H value heads and ch convolution channels of
// this rank.
#pragma once

#include <cmath>

#include "steppe/laws/attention.hpp"

namespace steppe::laws {

inline double beyond_cache_us(double io, double rate, double C) noexcept {
  if (io <= 0) return 0;
  const double ratio = C / io, r2 = ratio * ratio;
  return io / rate / (1 + r2 * r2);
}

struct ConvContext {
  double channels = 1, hbm = 1, F = 0, tn = 0, tq = 0, t2 = 0, v = 1, C = 1;
  double us(double requests, double rows) const noexcept {
    return F + tn * requests * channels + rows * channels * (tq + (requests > 1 ? t2 : 0)) +
           beyond_cache_us(4 * rows * channels, v * hbm, C);
  }
};

struct ScanContext {
  double heads = 1, row_bytes = 1, hbm = 1, F = 0, ts = 0, tc = 0, tw = 0, w0 = 0, v = 1, C = 1;
  // `chunked` is the rows with each request rounded up to one chunk of 64.
  double us(double requests, double rows, double chunked, double longest) const noexcept {
    return F + ts * requests * heads + norm_three_halves(tc * longest, tw * heads * chunked, 0) +
           w0 * chunked + beyond_cache_us(rows * row_bytes, v * hbm, C);
  }
};

}  // namespace steppe::laws
