// The refined laws as terms. Parameters are microseconds, bytes and bytes/us as the fits state them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "steppe/laws/attention.hpp"
#include "steppe/laws/collective.hpp"
#include "steppe/laws/experts.hpp"
#include "steppe/laws/gemm.hpp"
#include "steppe/laws/latent.hpp"
#include "steppe/laws/recurrent.hpp"
#include "terms.hpp"

namespace steppe::terms {

inline constexpr double kUs = 1e-6;

// A kernel of sqrt(compute^2 + memory^2): each side is charged its share of the whole, by its square.
inline Cost shared_us(double fixed, double compute, double memory) noexcept {
  const double c2 = compute * compute, m2 = memory * memory, sum = c2 + m2;
  if (sum <= 0) return {fixed * kUs, 0};
  const double root = std::sqrt(sum), hbm = m2 / root;
  return {(fixed + root - hbm) * kUs, hbm * kUs};
}

struct GemmTerm {
  static constexpr const char* name = "gemm";
  static constexpr std::array params = {
      "n",        "k",        "sms",      "bw",     "l2_B",     "peak_flops", "w_bytes",
      "a_bytes",  "act_gain", "eff",      "bw_eff", "tile_us",  "u0_ns",      "theta",
      "thr",      "thr_us",   "split_us", "t0",     "q_row_us", "q_col_us",   "chunk",
      "multi_us", "align_us", "mis_from", "ladder", "m1",       "tm1",        "tn1",
      "m2",       "tm2",      "tn2",      "m3",     "tm3",      "tn3"};
  static constexpr std::array inputs = {"rows", "unpadded"};
  laws::Gemm law;

  explicit GemmTerm(Numbers p) {
    const double n = p[0], k = p[1], sms = p[2], bw = p[3] * 1e-6, peak = p[5] * 1e-6;
    law.ladder = p[24] > 0;
    law.tile_count = 0;
    for (std::size_t i = 0; i < 3 && p[26 + 3 * i] > 0; ++i) {
      const double tm = p[26 + 3 * i], tn = p[27 + 3 * i];
      const double unit =
          p[12] * 1e-3 + 2 * tm * tn * sms / (peak * p[9]);  // us per unit of k, one tile on one SM
      const double edge = p[11] * tm * tn / 16384;
      law.tiles[i] = {tm, std::ceil(n / tn) / sms, k * unit + edge, edge, p[25 + 3 * i]};
      ++law.tile_count;
    }
    law.theta = p[13];
    law.throttle = p[14];
    law.throttle_us = p[15];
    law.split_us = p[16];
    law.t0 = p[17];
    law.row_us = p[18] + p[19] * std::ceil(k / p[20]) * p[20] / 2048;
    law.multi_us = p[21];
    law.align_us = p[22];
    law.align_from = p[23];
    law.mem_us = p[6] * n * k / (bw * p[10]);
    law.mem_row_us = (p[7] * k + 2 * n) / (bw * p[10]);
    law.act_gain = p[8];
    law.hot_rows = 0.5 * p[4] / (p[7] * k + 2 * n);
  }
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const double m = c.f[in[0]];
    return shared_us(law.fixed_us(m, c.f[in[1]] > 0), law.compute_us(m) * c.derate, law.memory_us(m));
  }
};

struct ExpertsTerm {
  static constexpr const char* name = "experts";
  static constexpr std::array params = {
      "experts", "top_k", "ep",        "hidden", "inner",  "matrices", "bw",           "peak_flops",
      "w_bytes", "pad",   "all_pairs", "t0",     "t_ramp", "c_dim",    "c_loc",        "c_tok",
      "c_route", "c_row", "c_act",     "eff",    "bw_eff", "tile0",    "concentration"};
  static constexpr std::array inputs = {"rows"};
  laws::Experts law;

  explicit ExpertsTerm(Numbers p) {
    const double hidden = p[3], inner = std::ceil(p[4] / p[9]) * p[9], mats = p[5], bw = p[6] * 1e-6,
                 peak = p[7] * 1e-6;
    law.experts = p[0];
    law.top_k = p[1];
    law.ep = p[2];
    law.local = p[0] / p[2];
    law.spread = p[2] > 1 ? 0.62 * std::pow(std::log2(p[2]), 0.75) : 0;
    law.concentration = p[22];
    law.log_miss = p[1] < p[0] ? std::log1p(-p[1] / p[0]) : 0;
    law.flop_us = 2 * mats * inner * hidden / (peak * p[19]);
    law.expert_us = mats * inner * hidden * p[8] / (bw * p[20]);
    law.tile0 = p[21];
    law.t0 = p[11] + p[13] * (hidden + inner) / 1000 + p[14] * law.local;
    law.t_ramp = p[12];
    law.token_us = p[15] * hidden / 1e6 + p[16] * p[1] / 1000;
    law.pair_us = (p[17] * hidden + p[18] * inner * (mats - 1)) / 1e6;
    law.all_pairs = p[10] > 0;
  }
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const double tokens = c.f[in[0]];
    const laws::Routing r = law.route(tokens);
    return shared_us(law.fixed_us(tokens, r), law.compute_us(r) * c.derate, law.memory_us(r));
  }
};

struct AttentionDecodeTerm {
  static constexpr const char* name = "attention_decode";
  static constexpr std::array params = {
      "n",      "g",      "d",         "e",  "sms", "bw", "F", "F1",   "F2",    "F3",       "t0",
      "t1",     "t2",     "tb",        "tq", "u",   "r",  "S", "wide", "swaps", "unpacked", "never_splits",
      "triton", "window", "one_launch"};
  static constexpr std::array inputs = {"decodes", "keys", "longest", "decode_tokens", "prefills"};
  laws::AttentionDecode law;
  double window;    // keys a window kernel reads at most; 0 = all
  bool one_launch;  // prefills share the launch, its floor is theirs

  explicit AttentionDecodeTerm(Numbers p) {
    law = {p[0],  p[1],  p[2],      p[3],      p[4],      p[5] * 1e-6, p[6],     p[7],
           p[8],  p[9],  p[10],     p[11],     p[12],     p[13],       p[14],    p[15],
           p[16], p[17], p[18] > 0, p[19] > 0, p[20] > 0, p[21] > 0,   p[22] > 0};
    window = p[23];
    one_launch = p[24] > 0;
  }
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const double longest = window > 0 ? std::min(c.f[in[2]], window) : c.f[in[2]];
    const laws::DecodeBatch b{c.f[in[0]], c.f[in[1]], longest, c.f[in[3]]};
    const double floor = one_launch && c.f[in[4]] > 0 ? 0 : law.floor_us(b);
    return shared_us(floor + law.tb * b.requests, law.item_us(b), law.memory_us(b));
  }
};

struct AttentionPrefillTerm {
  static constexpr const char* name = "attention_prefill";
  static constexpr std::array params = {"n",  "g",  "d",  "e",  "bw",  "F",   "F1", "a0", "a1",
                                        "r0", "r1", "tg", "tn", "tc0", "tc1", "rk", "v",  "C"};
  static constexpr std::array inputs = {"prefills", "prefill_tokens", "pairs",
                                        "visible",  "longest_chunk",  "cached_keys"};
  laws::AttentionPrefill law;
  explicit AttentionPrefillTerm(Numbers p)
      : law{p[0], p[1],  p[2],  p[3],  p[4] * 1e-6, p[5],  p[6],  p[7],  p[8],
            p[9], p[10], p[11], p[12], p[13],       p[14], p[15], p[16], p[17]} {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const laws::PrefillBatch b{c.f[in[0]], c.f[in[1]], c.f[in[2]], c.f[in[3]], c.f[in[4]], c.f[in[5]]};
    const double core =
        laws::norm_three_halves(law.compute_us(b) * c.derate, law.chain_us(b), law.memory_us(b));
    return {(law.fixed_us(b) + core) * kUs};
  }
};

// One latent-attention block: decode rows alone run the decode module; with prefills the context module's
// projections cover all rows, and both attentions follow.
struct MlaTerm {
  static constexpr const char* name = "mla";
  static constexpr std::array params = {"h",   "e",   "sms", "bw", "F1",  "L1",  "k0",  "k1",
                                        "u",   "r",   "S",   "F",  "w1",  "c0",  "c1",  "cF1",
                                        "cal", "cts", "ctc", "cF", "cw1", "cc0", "cc1", "mixed_us"};
  static constexpr std::array inputs = {"rows",          "decodes",  "keys",  "longest",
                                        "decode_tokens", "prefills", "pairs", "visible"};
  laws::MlaDecode decode;
  laws::MlaContext context;
  laws::Projections decode_rows, all_rows;
  double mixed_us;

  explicit MlaTerm(Numbers p)
      : decode{p[0], p[1], p[2], p[3] * 1e-6, p[4], p[5], p[6], p[7], p[8], p[9], p[10]},
        context{p[0], p[15], p[16], p[17], p[18]},
        decode_rows{p[0], p[11], p[12], p[13], p[14]},
        all_rows{p[0], p[19], p[20], p[21], p[22]},
        mixed_us(p[23]) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    Cost cost;
    const bool decodes = c.f[in[1]] > 0, prefills = c.f[in[5]] > 0;
    if (decodes) {
      const laws::DecodeBatch b{c.f[in[1]], c.f[in[2]], c.f[in[3]], c.f[in[4]]};
      cost = shared_us(decode.fixed_us(b), decode.compute_us(b), decode.memory_us(b));
    }
    if (!prefills) {
      cost.own += decode_rows.us(c.f[in[0]]) * kUs;
    } else {
      const laws::PrefillBatch b{c.f[in[5]], 0, c.f[in[6]], c.f[in[7]], 0, 0};
      cost.own += (all_rows.us(c.f[in[0]]) + context.us(b) * c.derate + (decodes ? mixed_us : 0)) * kUs;
    }
    return cost;
  }
};

// One sparse-selection block (DSA, MSA, CSA, HCA): S = selected + selected2, A = scored, over decodes or
// prefills.
struct SparseTerm {
  static constexpr const char* name = "sparse";
  static constexpr std::array params = {
      "h", "k0", "k1", "kc", "ts",    "F1",     "Fi",     "i0",           "i1",      "i2",
      "F", "w1", "c0", "c1", "limit", "limit2", "ratio2", "ratio_scored", "projects"};
  static constexpr std::array inputs = {"requests",  "rows",   "tokens",  "selected",
                                        "selected2", "scored", "longest", "others"};
  laws::Sparse law;
  laws::Projections projections;
  double limit, limit2, ratio2, ratio_scored;
  bool projects_alone;  // leave the projections to the prefill part when there is one

  explicit SparseTerm(Numbers p)
      : law{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9]},
        projections{p[0], p[10], p[11], p[12], p[13]},
        limit(p[14]),
        limit2(p[15]),
        ratio2(p[16]),
        ratio_scored(p[17]),
        projects_alone(p[18] > 0) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const double longest = c.f[in[6]];
    laws::SparseBatch b{c.f[in[0]], c.f[in[2]], c.f[in[3]], c.f[in[5]], 0, 0, longest};
    b.selected_max = std::min(longest, limit);
    if (ratio2 > 0) {
      b.selected += c.f[in[4]];
      b.selected_max += std::min(longest / ratio2, limit2);
    }
    b.scored_max = ratio_scored > 0 ? longest / ratio_scored : 0;
    double us = law.us(b) * c.derate;
    if (!projects_alone || c.f[in[7]] <= 0) us += projections.us(c.f[in[1]]);
    return {us * kUs};
  }
};

struct ConvContextTerm {
  static constexpr const char* name = "conv_context";
  static constexpr std::array params = {"channels", "bw", "F", "tn", "tq", "t2", "v", "C"};
  static constexpr std::array inputs = {"requests", "rows"};
  laws::ConvContext law;
  explicit ConvContextTerm(Numbers p) : law{p[0], p[1] * 1e-6, p[2], p[3], p[4], p[5], p[6], p[7]} {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {law.us(c.f[in[0]], c.f[in[1]]) * kUs};
  }
};

struct ScanContextTerm {
  static constexpr const char* name = "scan_context";
  static constexpr std::array params = {"heads", "row_bytes", "bw", "F", "ts", "tc", "tw", "w0", "v", "C"};
  static constexpr std::array inputs = {"requests", "rows", "chunked_rows", "longest"};
  laws::ScanContext law;
  explicit ScanContextTerm(Numbers p)
      : law{p[0], p[1], p[2] * 1e-6, p[3], p[4], p[5], p[6], p[7], p[8], p[9]} {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {law.us(c.f[in[0]], c.f[in[1]], c.f[in[2]], std::max(64.0, c.f[in[3]])) * kUs};
  }
};

// A collective of `bytes` a unit of x, by two protocols.
struct TwoProtocolTerm {
  static constexpr const char* name = "two_protocol";
  static constexpr std::array params = {"bytes", "a1", "R1", "a2", "R2"};
  static constexpr std::array inputs = {"x"};
  double bytes;
  laws::TwoProtocols law;
  explicit TwoProtocolTerm(Numbers p) : bytes(p[0]), law{p[1], p[2], p[3], p[4]} {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {law.us(bytes * c.f[in[0]]) * kUs};
  }
};

// A collective by its measured curve; below `smooth_bytes` never more than the two-protocol fit, where the
// launch does not take the dispatch step the curve was measured with.
struct CurveTerm {
  static constexpr const char* name = "curve";
  static constexpr int kHead = 6;  // numbers before the points
  static constexpr std::array params = {"bytes", "smooth_bytes", "a1", "R1", "a2", "R2", "points..."};
  static constexpr std::array inputs = {"x"};
  double bytes, smooth_bytes;
  laws::TwoProtocols smooth;
  std::vector<laws::CurvePoint> points;
  static const char* fault(Numbers p) {
    for (std::size_t i = kHead; i + 1 < p.size(); i += 2) {
      if (!(p[i] > 0) || !(p[i + 1] > 0)) return "points must be positive";
      if (i > kHead && !(p[i] > p[i - 2])) return "points must ascend in bytes";
    }
    return nullptr;
  }
  explicit CurveTerm(Numbers p) : bytes(p[0]), smooth_bytes(p[1]), smooth{p[2], p[3], p[4], p[5]} {
    for (std::size_t i = kHead; i + 1 < p.size(); i += 2)
      points.push_back({std::log2(p[i]), std::log(p[i + 1])});
  }
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const double b = bytes * c.f[in[0]];
    double us = laws::curve_us(points, b);
    if (b <= smooth_bytes) us = std::min(us, smooth.us(b));
    return {us * kUs};
  }
};

// Kernels [first, last] run on a second stream beside kernel `behind` while the step has at most `limit`
// rows: only what exceeds it counts, plus a fee for joining.
struct HiddenBehind {
  static constexpr const char* name = "hidden_behind";
  static constexpr std::array params = {"first", "last", "behind", "limit", "fee_us"};
  static constexpr std::array inputs = {"rows"};
  std::size_t first, last, behind;
  double limit, fee;
  static const char* fault(Numbers p) {
    for (const double index : p.first(3)) {
      if (!(index >= 0 && index < 65536)) return "refers to terms that do not come before it";
    }
    return nullptr;
  }
  explicit HiddenBehind(Numbers p)
      : first(static_cast<std::size_t>(p[0])),
        last(static_cast<std::size_t>(p[1])),
        behind(static_cast<std::size_t>(p[2])),
        limit(p[3]),
        fee(p[4] * kUs) {}
  // Seconds added, given what the kernels take in all and what the one they hide behind takes.
  double of(double rows, double hidden, double cover) const noexcept {
    return rows > limit ? 0 : fee - std::min(hidden, cover);
  }
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    double hidden = 0;
    for (std::size_t i = first; i <= last; ++i) hidden += c.earlier[i];
    return {of(c.f[in[0]], hidden, c.earlier[behind])};
  }
};

}  // namespace steppe::terms
