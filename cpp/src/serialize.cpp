#include "steppe/serialize.hpp"

#include <algorithm>
#include <array>

#include "archive.hpp"
#include "steppe/kernel.hpp"

namespace steppe {

// The layout: one description a record, read and written alike. A change here is a new kFormatVersion.
template <class A>
void fields(A& a, ReadClass& c) {
  a(c.limit, c.tail_ratio, c.divide, c.dcp, c.interleave, c.shard_sum);
}
template <class A>
void fields(A& a, PairClass& c) {
  a(c.figure, c.window, c.slack, c.select, c.ratio);
}
template <class A>
void fields(A& a, FeaturePlan& p) {
  a(p.reads, p.pairs, p.pcp, p.replicate_short_chunks, p.pad_to_capture, p.capture_ceiling, p.uniform_width,
    p.max_model_len, p.funnel, p.capture_sizes);
}
template <class A>
void fields(A& a, Pass& p) {
  a(p.rows, p.graph, p.block, p.extra, p.head_rows, p.count, p.ahead, p.grows, p.width, p.ceiling,
    p.max_requests, p.max_rows);
}
template <class A>
void fields(A& a, Stage& s) {
  a(s.name, s.layers, s.pass);
}
template <class A>
void fields(A& a, Term& t) {
  a(t.name, t.law, t.params, t.inputs, t.resource, t.stage, t.count, t.serial, t.derate);
}
template <class A>
void fields(A& a, Plan& p) {
  a(p.features, p.passes, p.stages, p.terms, p.sm_count);
}
template <class A>
void fields(A& a, CacheGroup& g) {
  a(g.kind, g.block_size, g.shards, g.span, g.speculative, g.checkpoint);
}
template <class A>
void fields(A& a, CacheLimits& l) {
  a(l.max_model_len, l.max_in_flight_tokens, l.extra_retained_tokens, l.lookahead_tokens,
    l.max_encoder_tokens);
}

constexpr std::uint64_t enumerators(Resource) { return kResources; }
constexpr std::uint64_t enumerators(PairFigure) { return 5; }
constexpr std::uint64_t enumerators(Pass::Rows) { return 4; }
constexpr std::uint64_t enumerators(Pass::Graph) { return 3; }
constexpr std::uint64_t enumerators(CacheKind) { return 9; }

namespace {

constexpr std::array<std::uint8_t, 8> kMagic = {'S', 'T', 'E', 'P', 'P', 'E', 'K', '\n'};
constexpr std::size_t kHeader = kMagic.size() + 4 + 8 + 8;

// FNV-1a: a checksum against damage, not against intent.
std::uint64_t checksum(std::span<const std::uint8_t> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument("not a serialized kernel: " + why);
}

std::vector<std::uint8_t> payload_of(const Stored& stored) {
  archive::Writer out;
  out(stored.plan, stored.provenance, stored.kv_bytes, stored.caches.has_value());
  if (stored.caches) {
    const auto groups = stored.caches->groups();
    const auto bytes = stored.caches->bytes_per_block();
    out(std::vector<CacheGroup>(groups.begin(), groups.end()),
        std::vector<std::int64_t>(bytes.begin(), bytes.end()), stored.caches->limits());
  }
  return out.take();
}

Stored stored_in(std::span<const std::uint8_t> payload) {
  archive::Reader in(payload);
  Stored stored;
  bool sized = false;
  in(stored.plan, stored.provenance, stored.kv_bytes, sized);
  if (sized) {
    std::vector<CacheGroup> groups;
    std::vector<std::int64_t> bytes;
    CacheLimits limits;
    in(groups, bytes, limits);
    stored.caches.emplace(std::move(groups), std::move(bytes), limits);
  }
  if (!in.done()) throw std::invalid_argument("bytes follow the kernel");
  return stored;
}

}  // namespace

std::vector<std::uint8_t> serialize(const Stored& stored) {
  const std::vector<std::uint8_t> payload = payload_of(stored);
  archive::Writer header;
  for (const std::uint8_t byte : kMagic) header(byte);
  header(kFormatVersion, std::uint64_t{payload.size()}, checksum(payload));
  std::vector<std::uint8_t> bytes = header.take();
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

std::vector<std::uint8_t> serialize(const Plan& plan) {
  return serialize(Stored{plan, std::nullopt, -1, {}});
}

Stored deserialize(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kHeader) refuse("it is shorter than a header");
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin()))
    refuse("it does not start with the magic number");
  archive::Reader header(bytes.subspan(kMagic.size(), kHeader - kMagic.size()));
  std::uint32_t version = 0;
  std::uint64_t size = 0, sum = 0;
  header(version, size, sum);
  if (version != kFormatVersion) {
    refuse("format version " + std::to_string(version) + ", this library reads version " +
           std::to_string(kFormatVersion) + "; write the kernel again with the library that reads it");
  }
  const std::span<const std::uint8_t> payload = bytes.subspan(kHeader);
  if (payload.size() != size) refuse("it is cut short or has bytes appended");
  if (checksum(payload) != sum) refuse("the checksum does not match, the bytes were damaged");
  try {
    Stored stored = stored_in(payload);
    Kernel probe(stored.plan);  // refuses a plan no kernel can be built from
    return stored;
  } catch (const std::exception& e) {
    refuse(e.what());
  }
}

}  // namespace steppe
