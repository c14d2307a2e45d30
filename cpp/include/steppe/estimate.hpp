// What a step costs.
#pragma once

#include <array>
#include <cstdint>

namespace steppe {

enum class Resource : std::uint8_t { sm, hbm, nvlink, nic, host };
inline constexpr int kResources = 5;
inline constexpr std::array<const char*, kResources> kResourceNames = {"sm", "hbm", "nvlink", "nic", "host"};

// Integer nanoseconds on one rank. no_overlap is the sum of the five resources; overlap lets the resources of
// a layer run side by side, never two layers.
struct Estimate {
  std::int64_t no_overlap_ns = 0;
  std::int64_t overlap_ns = 0;
  std::array<std::int64_t, kResources> resource_ns{};
  std::int64_t draft_ns = 0;    // the draft passes' share of no_overlap
  std::int64_t tokens = 0;      // scheduled
  std::uint8_t bottleneck = 0;  // index of the largest resource
};

}  // namespace steppe
