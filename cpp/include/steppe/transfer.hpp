// Work around a step: moving a request's cache between pools and tiers, and what the host spends on a
// request.
//
// Pure functions of bytes, bytes/s and seconds; `ns` truncates them as estimates are.
#pragma once

#include <algorithm>
#include <cstdint>

namespace steppe::laws {

// One link: what a transfer costs at least, and the rate at which bytes cross it.
struct Link {
  double floor_s = 0;
  double bytes_per_s = 1;
};

// max(floor, bytes/rate); nothing where there is nothing to move.
constexpr double transfer_s(double bytes, const Link& link) noexcept {
  return bytes > 0 ? std::max(link.floor_s, bytes / link.bytes_per_s) : 0;
}

// One direction of a storage tier behind the host link. `depth` transfers share the slower of the two rates.
struct TierLink {
  double latency_s = 0;
  double device_bytes_per_s = 1;
  double host_bytes_per_s = 0;  // 0 = no cap is known
};

constexpr double tier_s(double bytes, double depth, const TierLink& tier) noexcept {
  if (!(bytes > 0)) return 0;
  const double capped = tier.host_bytes_per_s > 0 ? std::min(tier.device_bytes_per_s, tier.host_bytes_per_s)
                                                  : tier.device_bytes_per_s;
  return std::max(tier.latency_s, bytes / (capped / std::max(1.0, depth)));
}

// Host time to take a prompt in: nothing for an empty one.
constexpr double admission_s(double prompt, double per_request_s, double per_token_s) noexcept {
  return prompt > 0 ? per_request_s + per_token_s * prompt : 0;
}

// Whole nanoseconds of a time below a century.
constexpr std::int64_t ns(double seconds) noexcept {
  return static_cast<std::int64_t>(std::min(seconds, 3.15e9) * 1e9);
}

}  // namespace steppe::laws
