// Each law as a pure function, on numbers round enough to work by hand.
#include <cmath>
#include <vector>

#include "check.hpp"
#include "steppe/laws/attention.hpp"
#include "steppe/laws/collective.hpp"
#include "steppe/laws/experts.hpp"
#include "steppe/laws/gemm.hpp"
#include "steppe/laws/latent.hpp"
#include "steppe/laws/recurrent.hpp"
#include "steppe/laws/reference.hpp"

using namespace steppe::laws;

namespace {
bool near(double got, double want) { return std::fabs(got - want) <= 1e-12 * std::fabs(want) + 1e-300; }
}  // namespace

// -- reference
// -------------------------------------------------------------------------------------------------------

TEST(affine_is_a_line) {
  CHECK(affine(3, 2, 10) == 23);
  CHECK(affine(3, 2, 0) == 3);
}

TEST(a_collective_is_the_slower_of_its_pieces) {
  CHECK(two_piece(5, 1, 2, 1) == 6);      // floor + transition
  CHECK(two_piece(5, 1, 2, 5) == 10);     // they meet
  CHECK(two_piece(5, 1, 2, 100) == 200);  // peak
}

TEST(distinct_experts_of_two_draws) {
  // 8 experts, 2 a token: a token misses one with 3/4, two tokens with 9/16.
  CHECK(near(touched_experts(8, std::log(0.75), 1), 2));
  CHECK(near(touched_experts(8, std::log(0.75), 2), 3.5));
  CHECK(near(touched_experts(8, std::log(0.75), 1e6), 8));
}

TEST(prefill_work_under_the_ramp) {
  // 10 + 200 pairs * 0.5 at half saturation (m = m_half doubles), the derate on the work alone.
  CHECK(near(ramped_prefill(10, 0.5, 64, 200, 64, 1), 210));
  CHECK(near(ramped_prefill(10, 0.5, 64, 200, 64, 1.5), 310));
  CHECK(near(ramped_prefill(10, 0.5, 0, 200, 64, 1), 110));
}

// -- products
// --------------------------------------------------------------------------------------------------------

TEST(waves_round_up_as_far_as_theta_says) {
  Gemm g;
  g.tiles[0] = {64, 0.5, 10, 2, 0};
  g.tile_count = 1;
  g.theta = 1;
  CHECK(g.compute_us(1) == 10);    // half a wave is a wave
  CHECK(g.compute_us(128) == 10);  // two rows of tiles: one
  CHECK(g.compute_us(129) == 20);  // three: one and a half, rounded up
  g.theta = 0;
  CHECK(g.compute_us(129) == 15);
  g.theta = 0.5;
  CHECK(g.compute_us(129) == 17.5);
  CHECK(g.compute_us(1) == 10);
}

TEST(the_faster_tiling_runs) {
  Gemm g;
  g.theta = 1;
  g.tiles[0] = {64, 1, 10, 2, 0};
  g.tiles[1] = {128, 0.5, 30, 8, 0};
  CHECK(g.compute_us(64) == 10);
  CHECK(g.compute_us(1024) == 120);  // 16 waves of 10, or 4 of 30
  g.tile_count = 1;
  CHECK(g.compute_us(1024) == 160);
}

TEST(split_k_spreads_a_short_grid_for_a_fee) {
  Gemm g;
  g.tile_count = 1;
  g.theta = 1;
  g.tiles[0] = {64, 0.125, 100, 4, 0};
  CHECK(g.compute_us(1) == 100);
  g.split_us = 3;
  CHECK(near(g.compute_us(1), 3 + 96 * 0.125 + 4));  // an eighth of the main loop, the edges whole
  g.tiles[0].tiles_per_sm = 0.001;
  CHECK(near(g.compute_us(1), 3 + 96.0 / 32 + 4));  // no finer than 32 ways
  g.tiles[0].tiles_per_sm = 1;
  CHECK(g.compute_us(1) == 100);  // nothing to spread
}

TEST(a_ladder_never_steps_down) {
  Gemm g;
  g.ladder = true;
  g.theta = 1;
  g.tile_count = 3;
  g.tiles[0] = {64, 0.5, 10, 2, 64};
  g.tiles[1] = {64, 0.25, 8, 2, 256};
  g.tiles[2] = {128, 0.5, 50, 2, 1e9};
  CHECK(g.compute_us(64) == 10);
  CHECK(g.compute_us(65) == 10);  // 8 by its own tiles, but the rung below took 10 at its top
  CHECK(g.compute_us(256) == 10);
  CHECK(g.compute_us(257) == 100);  // three rows of tiles: 1.5 waves, 2
  CHECK(g.compute_us(129) == 10);
}

TEST(long_products_are_throttled) {
  Gemm g;
  g.tile_count = 1;
  g.theta = 1;
  g.tiles[0] = {64, 1, 100, 0, 0};
  g.throttle = 0.5;
  g.throttle_us = 100;
  CHECK(near(g.compute_us(1), 125));  // half of 50 % at 100 us
}

TEST(activations_hot_in_a_large_cache) {
  Gemm g;
  g.mem_us = 20;
  g.mem_row_us = 0.5;
  CHECK(g.memory_us(100) == 70);
  g.act_gain = 4;
  g.hot_rows = 100;
  CHECK(near(g.memory_us(100), 20 + 50 * (0.5 + 0.5 / 4)));  // half hot at the knee
  CHECK(g.memory_us(1e6) > 20 + 0.999 * 5e5);                // cold far above
  CHECK(g.memory_us(1) < 20 + 0.13);                         // hot far below
}

TEST(fixed_costs_of_a_product) {
  Gemm g;
  g.t0 = 2;
  g.row_us = 0.25;
  g.multi_us = 1;
  g.align_us = 0.5;
  g.align_from = 6;
  CHECK(g.fixed_us(1, false) == 2.25);
  CHECK(g.fixed_us(4, false) == 4);
  CHECK(g.fixed_us(7, true) == 2 + 1.75 + 1 + 0.5);
  CHECK(g.fixed_us(7, false) == 2 + 1.75 + 1);  // a graph's rows are padded
  CHECK(g.fixed_us(8, true) == 2 + 2 + 1);      // a multiple of four
  CHECK(g.fixed_us(5, true) == 2 + 1.25 + 1);   // too few rows
}

// -- experts
// ---------------------------------------------------------------------------------------------------------

TEST(pairs_and_experts_of_uniform_routing) {
  Experts e;
  e.experts = 8;
  e.top_k = 2;
  e.local = 8;
  e.log_miss = std::log1p(-0.25);
  const Routing r = e.route(2);
  CHECK(near(r.pairs, 4));
  CHECK(near(r.touched, 3.5));
  e.top_k = 8;
  CHECK(e.route(3).touched == 8);
}

TEST(concentrated_routing_touches_fewer_experts) {
  Experts e;
  e.experts = 64;
  e.top_k = 4;
  e.local = 64;
  e.log_miss = std::log1p(-4.0 / 64);
  e.concentration = 1;
  CHECK(near(e.route(16).touched, 32));  // 64 pairs on 64 experts: 1 - 1/2
  e.concentration = 0.5;
  CHECK(near(e.route(16).touched, 64 * (1 - 1 / 2.25)));
  e.concentration = 0.25;
  CHECK(near(e.route(16).touched, 64 * (1 - std::pow(1.25, -4))));
  CHECK(e.route(0.25).touched <= 1);  // never more experts than pairs
}

TEST(the_busiest_of_several_ranks) {
  Experts e;
  e.experts = 64;
  e.top_k = 4;
  e.ep = 4;
  e.local = 16;
  e.log_miss = std::log1p(-4.0 / 64);
  e.spread = 0.62 * std::pow(2.0, 0.75);
  const double busy = 1 + e.spread * std::sqrt(4.0 / (100 * 4));
  CHECK(near(e.route(100).pairs, busy * 100));
  CHECK(e.route(1).pairs <= 4);  // one token sends four pairs at most
  Experts few = e;               // ... and no rank gets more of them than it has experts
  few.experts = 16;
  few.local = 2;
  few.spread = 10;
  CHECK(few.route(1).pairs == 2);
  e.load_variance = 1.44;
  CHECK(near(e.route(100).pairs, (1 + e.spread * std::sqrt(1.44 / 16 + 0.01)) * 100));
}

TEST(rows_are_padded_to_the_cheapest_tile) {
  Experts e;
  e.flop_us = 1;
  CHECK(e.compute_us({4, 4}) == 64);           // four experts, a tile of 16 each
  CHECK(near(e.compute_us({1000, 4}), 1030));  // full tiles: half a tile lost an expert
  e.tile0 = 16;                                // small tiles run at half speed
  CHECK(e.compute_us({4, 4}) == 128);
  CHECK(near(e.compute_us({1000, 1}), 1063.5 * 1.125));  // now tiles of 128 win
}

TEST(fixed_costs_and_weights_of_experts) {
  Experts e;
  e.top_k = 2;
  e.t0 = 5;
  e.t_ramp = 4;
  e.token_us = 0.5;
  e.pair_us = 0.25;
  e.expert_us = 3;
  CHECK(near(e.fixed_us(16, {32, 8}), 5 + 2 + 8 + 8));
  CHECK(near(e.fixed_us(16, {10, 8}), 5 + 2 + 8 + 2.5));
  e.all_pairs = true;
  CHECK(near(e.fixed_us(16, {10, 8}), 5 + 2 + 8 + 8));
  CHECK(e.memory_us({10, 8}) == 24);
}

// -- attention
// -------------------------------------------------------------------------------------------------------

TEST(floors_of_decode_attention) {
  AttentionDecode a;
  a.F = 5;
  a.F1 = 8;
  a.F2 = 3;
  a.F3 = 2;
  CHECK(near(a.floor_us({1, 300, 300, 1}), 5 + 4));  // splits set in at 300 keys
  a.wide = true;
  CHECK(near(a.floor_us({1, 300, 300, 1}), 5 + 4 + 3));
  a.swaps = true;
  CHECK(near(a.floor_us({1, 300, 300, 1}), 5 + 4 + 3));
  CHECK(near(a.floor_us({2, 600, 300, 2}), 5 + 4 + 3 + 2));
  a.never_splits = true;
  CHECK(near(a.floor_us({2, 600, 300, 2}), 5 + 3 + 2));
}

TEST(items_of_decode_attention) {
  AttentionDecode a;
  a.n = 32;
  a.g = 8;
  a.d = 64;
  a.t0 = 1;
  a.t1 = 0.25;
  a.t2 = 0.125;
  a.tq = 2;
  CHECK(a.item_us({2, 0, 0, 2}) ==
        16 * (1 + 16 + 0.125 * 64 * 4 + 4));  // two requests, eight heads, four rows each
  CHECK(a.item_us({2, 0, 0, 8}) == 16 * (1 + 16 + 0.125 * 64 * 16 + 4));    // four rows verified a request
  CHECK(a.item_us({1, 0, 0, 33}) == 16 * (1 + 16 + 0.125 * 64 * 132 + 2));  // beyond 128 rows a second item
  a.unpacked = true;
  CHECK(a.item_us({2, 0, 0, 2}) == 64 * (1 + 16 + 0.125 * 64 + 4));
  a.unpacked = false;
  a.triton = true;
  CHECK(a.item_us({2, 0, 0, 2}) == 16 * (16 * 17 + 0.125 * 64 * 4 + 4));
  CHECK(a.item_us({17, 0, 0, 17}) == 136 * (17 + 0.125 * 64 * 4 + 34));  // enough items: no segments
  CHECK(!a.nosplit({16, 0, 0, 16}) && a.nosplit({17, 0, 0, 17}));
}

TEST(reads_of_decode_attention) {
  AttentionDecode a;
  a.n = a.g = 8;
  a.d = 128;
  a.element_bytes = 2;
  a.sms = 64;
  a.hbm = 1e9;  // far from the bound
  a.r = 1000;
  a.u = 1;
  a.S = 4;
  // 8 heads x 2 requests x 2 splits of 128 keys each = 32 readers of 1000 bytes/us.
  CHECK(std::fabs(a.memory_us({2, 256, 128, 2}) - 2.0 * 256 * 8 * 128 * 2 / 32000) < 1e-6);
  // long contexts: 4 splits at most, 64 readers
  CHECK(std::fabs(a.memory_us({2, 20000, 10000, 2}) - 2.0 * 20000 * 8 * 128 * 2 / 64000) < 1e-6);
  a.hbm = 64000;  // both bounds alike: the fourth root of two slower
  CHECK(near(a.memory_us({2, 20000, 10000, 2}), 2.0 * 20000 * 8 * 128 * 2 / 64000 * std::pow(2.0, 0.25)));
  a.hbm = 1e9;
  // one long request among short ones is read by its own splits
  CHECK(near(a.memory_us({100, 100 * 16 + 10000, 10000, 100}), 10000 * 2 * 128 * 2.0 / 4000));
  a.never_splits = true;
  CHECK(near(a.memory_us({2, 10000, 9999, 2}), 9999 * 2 * 128 * 2.0 / 1000));
  a.never_splits = false;
  a.unpacked = true;
  a.n = 32;
  CHECK(std::fabs(a.memory_us({2, 20000, 10000, 2}) - 2.0 * 20000 * 32 * 128 * 2 / 64000) < 1e-6);
  CHECK(near(a.work_us({2, 20000, 10000, 2}), a.memory_us({2, 20000, 10000, 2})));
}

TEST(prefill_attention) {
  AttentionPrefill a;
  a.n = 4;
  a.g = 2;
  a.d = 8;
  a.element_bytes = 2;
  a.hbm = 100;
  a.F = 3;
  a.F1 = 4;
  a.a0 = 1;
  a.a1 = 0.5;
  a.r0 = 2;
  a.r1 = 0.25;
  a.tg = 10;
  a.tn = 20;
  a.tc0 = 1;
  a.tc1 = 0.125;
  a.rk = 0.5;
  a.v = 0.5;
  a.C = 0;
  const PrefillBatch b{2, 256, 1000, 300, 256, 50};
  CHECK(a.compute_us(b) == 4 * (1000 * 5.0 + 256 * 4.0) + 2 * (20 + 80.0));
  CHECK(a.chain_us(b) == 300 * 2.0);
  CHECK(near(a.memory_us(b), 2 * 50 * 2 * 8 * 2 / 85.0));
  CHECK(near(a.fixed_us(b),
             3 + 2 + 0.5 * 256 * 16 + 256 * 8 * 32 / 50.0));  // C = 0: all of it beyond the cache
  a.C = 256 * 8 * 32;
  CHECK(near(a.fixed_us(b), 3 + 2 + 0.5 * 256 * 16 + 256 * 8 * 32 / 50.0 / 2));
}

TEST(norms_of_three_halves) {
  CHECK(near(norm_three_halves(8, 0, 0), 8));
  CHECK(near(norm_three_halves(1, 1, 0), std::cbrt(4.0)));
  CHECK(near(norm_three_halves(4, 4, 4), 4 * std::cbrt(9.0)));
  CHECK(norm_three_halves(0, 0, 0) == 0);
}

// -- latent and sparse blocks
// ----------------------------------------------------------------------------------------

TEST(projections_of_a_block) {
  const Projections p{2, 10, 1.5, 0.1, 0.2};
  CHECK(near(p.us(8), 10 + 5));  // weights 3, work 8 * 0.5 = 4
}

TEST(latent_decode) {
  MlaDecode m;
  m.h = 16;
  m.F1 = 6;
  m.L1 = 1000;
  m.k0 = 0.5;
  m.k1 = 0.25;
  const DecodeBatch b{4, 4000, 1000, 4};
  CHECK(m.fixed_us(b) == 3);
  CHECK(m.compute_us(b) == 4000 * 4.5);
  CHECK(m.compute_us({4, 4000, 1000, 8}) == 2 * 4000 * 4.5);  // two rows a request
  m.sms = 1000;
  m.S = 8;
  m.r = 10;
  m.u = 1;
  m.hbm = 1e9;
  m.element_bytes = 1;
  CHECK(std::fabs(m.memory_us(b) - 4000 * 576 / (10.0 * 32)) < 1e-6);            // eight splits a request
  CHECK(std::fabs(m.memory_us({4, 64, 16, 4}) - 64 * 576 / (10.0 * 5)) < 1e-6);  // short: one, and a quarter
  m.h = 129;
  CHECK(std::fabs(m.memory_us(b) - 4000 * 576 / (10.0 * 64)) < 1e-6);  // two groups of heads
  m.sms = 20;
  CHECK(std::fabs(m.memory_us(b) - 4000 * 576 / (10.0 * 20)) < 1e-6);  // no more than the part has
}

TEST(latent_prefill) {
  const MlaContext m{2, 8, 0.5, 3, 0.25};
  // grow 4 at 256 keys; work 2 * (100 * 0.5 + 1 * 3) = 106, chain 64
  CHECK(near(m.us({1, 0, 100, 256, 0, 0}), 4 + norm_three_halves(106, 64, 0)));
}

TEST(sparse_selection) {
  Sparse s;
  s.h = 2;
  s.k0 = 1;
  s.k1 = 0.5;
  s.kc = 0.25;
  s.ts = 7;
  s.F1 = 10;
  s.Fi = 4;
  s.i0 = 0.5;
  s.i1 = 3;
  s.i2 = 4;
  // selected 3 keys x 2 = 6, chain 32 * 0.25 = 8: 10; scored 1 x 3 and 1 x 4: 5
  CHECK(near(s.us({2, 6, 3, 1, 32, 1, 64}), 5 + 14 + 10 + 4 + 3 + 5));
}

// -- recurrent mixers
// ------------------------------------------------------------------------------------------------

TEST(bytes_beyond_the_cache) {
  CHECK(beyond_cache_us(0, 10, 100) == 0);
  CHECK(beyond_cache_us(100, 10, 100) == 5);
  CHECK(beyond_cache_us(100, 10, 0) == 10);
}

TEST(a_convolution) {
  ConvContext c;
  c.channels = 10;
  c.hbm = 100;
  c.F = 2;
  c.tn = 0.5;
  c.tq = 0.25;
  c.t2 = 0.125;
  c.v = 0.5;
  c.C = 0;
  CHECK(near(c.us(1, 8), 2 + 5 + 20 + 320 / 50.0));
  CHECK(near(c.us(2, 8), 2 + 10 + 30 + 320 / 50.0));  // several requests
}

TEST(a_scan) {
  ScanContext s;
  s.heads = 2;
  s.row_bytes = 50;
  s.hbm = 100;
  s.F = 1;
  s.ts = 3;
  s.tc = 0.5;
  s.tw = 0.25;
  s.w0 = 0.125;
  s.v = 1;
  s.C = 0;
  CHECK(near(s.us(2, 64, 128, 64), 1 + 12 + norm_three_halves(32, 64, 0) + 16 + 32));
}

// -- collectives
// -----------------------------------------------------------------------------------------------------

TEST(two_protocols_join_smoothly) {
  const TwoProtocols t{4, 100, 10, 1000};
  CHECK(near(t.us(0), 1 / std::cbrt(1 / 64.0 + 1 / 1000.0)));
  const TwoProtocols same{4, 100, 4, 100};
  CHECK(near(same.us(600), 10 / std::cbrt(2.0)));
  CHECK(t.us(1e9) < 1e6 + 10 && t.us(1e9) > 0.99e6);  // the bandwidth protocol
}

TEST(a_measured_curve) {
  const std::vector<CurvePoint> points{{10, std::log(4.0)}, {12, std::log(8.0)}, {20, std::log(100.0)}};
  CHECK(near(curve_us(points, 1), 4));  // flat below the first
  CHECK(near(curve_us(points, 1024), 4));
  CHECK(near(curve_us(points, 2048), 4 * std::sqrt(2.0)));  // straight in logarithms
  CHECK(near(curve_us(points, 4096), 8));
  CHECK(near(curve_us(points, 1 << 20), 100));
  CHECK(near(curve_us(points, 1 << 22), 400));  // proportional above the last
}
