// A kernel as bytes: what a program without Python, or another process, needs to price the same steps.
//
// Little-endian whatever the host: magic, format version, payload size, checksum, payload. A reader refuses
// what it does not know, what is cut short, what fails the checksum and what no kernel could be built from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steppe/caches.hpp"
#include "steppe/plan.hpp"

namespace steppe {

inline constexpr std::uint32_t kFormatVersion = 1;

// What travels: the plan, the cache pool where the deployment was sized, and a JSON text of where the numbers
// come from.
struct Stored {
  Plan plan;
  std::optional<CachePool> caches;
  std::int64_t kv_bytes = -1;  // what a rank has left for caches; -1 = not sized
  std::string provenance;
};

std::vector<std::uint8_t> serialize(const Stored& stored);
std::vector<std::uint8_t> serialize(const Plan& plan);

// Throws std::invalid_argument saying what is wrong with the bytes.
Stored deserialize(std::span<const std::uint8_t> bytes);

}  // namespace steppe
