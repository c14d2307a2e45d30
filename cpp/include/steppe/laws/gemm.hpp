// Refined GEMM law: one linear layer m x k times k x n, its activation quantiser included. Microseconds.
//
//   T  = t0 + Tx + Tq + sqrt(Tc^2 + Tm^2)
//   Tc = tiled main loop, the fastest of two tilings ("min") or the one the library dispatches to ("ladder")
//   Tm = (weight bytes + activation bytes) / (bandwidth * bw_eff)
//   Tq = m * (q_row + q_col * ceil(k/chunk)*chunk/2048), the quantiser; Tx = multi*(m > 1) + align*(m % 4,
//   eager)
//
// Fitted by `steppe calibrate` (gemm); held-out errors in docs/research/laws.md.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

namespace steppe::laws {

struct GemmShape {
  double n, k;  // output and input features of this rank
};

// One tiling with everything that does not depend on m folded in.
struct GemmTile {
  double tm = 64;           // rows a tile
  double tiles_per_sm = 0;  // ceil(n/tn) / SMs: tiles of one row of tiles, over the SMs
  double wave_us = 0;       // k*u + e: one wave of tiles
  double edge_us = 0;       // ... of which e, its prologue and epilogue
  double top_m = 0;         // ladder: last m dispatched here
};

struct Gemm {
  std::array<GemmTile, 3> tiles{};
  int tile_count = 2;
  bool ladder = false;
  double theta = 0.5;   // 1: whole waves; 0: perfectly balanced
  double split_us = 0;  // fee of split-K, 0 = the kernel has none
  double throttle = 0, throttle_us = 1;
  double mem_us = 0;      // weight bytes over the achieved bandwidth
  double mem_row_us = 0;  // activation bytes a row, likewise
  double hot_rows =
      0;  // rows whose activations fill half the L2 of a part that keeps them there (0: none does)
  double act_gain = 1;  // ... and how much faster they are read from it
  double row_us = 0;    // quantiser a row
  double t0 = 0, multi_us = 0, align_us = 0, align_from = 2;

  double waves(const GemmTile& t, double rows) const noexcept {
    const double x = std::ceil(rows / t.tm) * t.tiles_per_sm;
    return std::max(1.0, theta * std::ceil(x) + (1 - theta) * x);
  }
  double tile_us(const GemmTile& t, double m) const noexcept {
    double us = waves(t, m) * t.wave_us;
    if (split_us > 0) {
      const double x = std::ceil(m / t.tm) * t.tiles_per_sm;
      us = std::min(us, split_us + (t.wave_us - t.edge_us) * std::max(x, 1.0 / 32) + t.edge_us);
    }
    return us;
  }
  double compute_us(double m) const noexcept {
    double us;
    if (!ladder) {
      us = tile_us(tiles[0], m);
      for (int i = 1; i < tile_count; ++i) us = std::min(us, tile_us(tiles[static_cast<std::size_t>(i)], m));
    } else {
      std::size_t i = 0;
      while (static_cast<int>(i) + 1 < tile_count && m > tiles[i].top_m) ++i;
      us = tile_us(tiles[i], m);
      // A rung never undercuts the one below at its own top: keeps the law monotone in m.
      if (i > 0) us = std::max(us, tile_us(tiles[i - 1], tiles[i - 1].top_m));
    }
    return us * (1 + throttle * us / (us + throttle_us));
  }
  double memory_us(double m) const noexcept {
    double rows = mem_row_us * m;
    if (act_gain > 1) {
      const double fill = m / hot_rows, cold = fill * fill / (1 + fill * fill);
      rows *= cold + (1 - cold) / act_gain;
    }
    return mem_us + rows;
  }
  // What is neither arithmetic nor memory: launch, quantiser, alignment of eager row counts.
  double fixed_us(double m, bool eager) const noexcept {
    double us = t0 + row_us * m + (m > 1 ? multi_us : 0);
    if (eager && m >= align_from && std::fmod(m, 4) != 0) us += align_us;
    return us;
  }
};

}  // namespace steppe::laws
