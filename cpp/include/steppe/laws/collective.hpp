// Refined collective laws. Microseconds over bytes.
//
//   two protocols: t = ((a1 + b/R1)^-3 + (a2 + b/R2)^-3)^(-1/3), a low-latency and a bandwidth protocol
//   measured curve: log-log interpolation between measured sizes, linear in bytes above the largest
//
// Fitted or collected by `steppe calibrate` (collectives).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace steppe::laws {

struct TwoProtocols {
  double a1 = 0, R1 = 1, a2 = 0, R2 = 1;
  double us(double bytes) const noexcept {
    const double x = a1 + bytes / R1, y = a2 + bytes / R2;
    // (x^-3 + y^-3)^(-1/3), from the smaller for accuracy
    const double low = std::min(x, y), ratio = low / std::max(x, y);
    return low / std::cbrt(1 + ratio * ratio * ratio);
  }
};

// Points are (log2 bytes, ln us), ascending.
struct CurvePoint {
  double log2_bytes, log_us;
};

inline double curve_us(std::span<const CurvePoint> points, double bytes) noexcept {
  const CurvePoint& last = points.back();
  const double x = std::log2(bytes);
  if (x >= last.log2_bytes) return std::exp(last.log_us) * bytes / std::exp2(last.log2_bytes);
  if (x <= points.front().log2_bytes) return std::exp(points.front().log_us);
  std::size_t i = 1;
  while (points[i].log2_bytes < x) ++i;
  const CurvePoint &a = points[i - 1], &b = points[i];
  return std::exp(a.log_us + (b.log_us - a.log_us) * (x - a.log2_bytes) / (b.log2_bytes - a.log2_bytes));
}

}  // namespace steppe::laws
