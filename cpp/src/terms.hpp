// Terms compiled for evaluation: each law a small struct holding its lifted numbers, one variant alternative
// a law.
//
// A law states `name`, its parameters and its inputs in order. The first input is the gate: the law costs
// nothing while that feature is 0. Evaluation reads features only; `Context` carries the little that is not a
// feature. A law whose numbers must be more than finite says what is wrong with them in `fault`.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "steppe/batch.hpp"
#include "steppe/features.hpp"
#include "steppe/laws/reference.hpp"

namespace steppe::terms {

inline constexpr int kMaxInputs = 8;
using Inputs = std::array<std::uint16_t, kMaxInputs>;
using Numbers = std::span<const double>;

// Seconds on the term's own resource, and seconds the kernel is bound by memory.
struct Cost {
  double own = 0;
  double hbm = 0;
};

struct Context {
  const Features& f;
  const Batch& batch;
  double derate;          // of this term: 1 unless an SM budget slows it
  const double* earlier;  // seconds of the terms before this one in the plan, per launch
};

struct Affine {
  static constexpr const char* name = "affine";
  static constexpr std::array params = {"constant", "slope"};
  static constexpr std::array inputs = {"gate", "x"};
  double constant, slope;
  explicit Affine(Numbers p) : constant(p[0]), slope(p[1]) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {laws::affine(constant, slope, c.f[in[1]]) * c.derate};
  }
};

struct TwoPiece {
  static constexpr const char* name = "two_piece";
  static constexpr std::array params = {"floor", "transition_slope", "peak_slope"};
  static constexpr std::array inputs = {"gate", "x"};
  double floor, transition, peak;
  explicit TwoPiece(Numbers p) : floor(p[0]), transition(p[1]), peak(p[2]) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {laws::two_piece(floor, transition, peak, c.f[in[1]])};
  }
};

struct TouchedExperts {
  static constexpr const char* name = "touched_experts";
  static constexpr std::array params = {"whole", "log_miss", "funnel"};
  static constexpr std::array inputs = {"tokens"};
  double whole, log_miss;
  explicit TouchedExperts(Numbers p) : whole(p[0]), log_miss(p[1] * p[2]) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {laws::touched_experts(whole, log_miss, c.f[in[0]])};
  }
};

struct RampedPrefill {
  static constexpr const char* name = "ramped_prefill";
  static constexpr std::array params = {"floor", "work", "m_half"};
  static constexpr std::array inputs = {"prefills", "pairs", "tokens"};
  double floor, work, m_half;
  explicit RampedPrefill(Numbers p) : floor(p[0]), work(p[1]), m_half(p[2]) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {laws::ramped_prefill(floor, work, m_half, c.f[in[1]], c.f[in[2]], c.derate)};
  }
};

// A credit of `amount` (negative seconds) when both gates are open: one launch serves decodes and prefills.
struct BothGates {
  static constexpr const char* name = "both";
  static constexpr std::array params = {"amount"};
  static constexpr std::array inputs = {"gate", "second_gate"};
  double amount;
  explicit BothGates(Numbers p) : amount(p[0]) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    return {c.f[in[1]] > 0 ? amount : 0.0};
  }
};

// Host time of a step by CUDA-graph mode; the only law that also prices an empty batch.
struct HostLaunch {
  static constexpr const char* name = "host_launch";
  static constexpr std::array params = {"uniform_decode", "mixed", "eager", "kernels", "ceiling"};
  static constexpr std::array inputs = {"scheduled"};
  double uniform, mixed, eager, kernels, ceiling;
  explicit HostLaunch(Numbers p) : uniform(p[0]), mixed(p[1]), eager(p[2]), kernels(p[3]), ceiling(p[4]) {}
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const double scheduled = c.f[in[0]];
    if (scheduled <= 0) return {uniform};
    if (scheduled > ceiling) return {eager + kernels};
    return {(c.f.uniform ? uniform : mixed) + kernels};
  }
};

// Gathers of a latent prefill's cached context under decode-context parallelism: prefills in ascending
// scheduled order, runs broken by a fresh prefill; a run of context S pays ceil(S/chunk) gathers of S/chunks
// tokens each. (vllm/model_executor/layers/attention/mla_attention.py:1922-2080, 2297-2320)
struct ContextGather {
  static constexpr const char* name = "context_gather";
  static constexpr std::array params = {"floor", "transition_slope", "peak_slope", "chunk"};
  static constexpr std::array inputs = {"prefills"};
  TwoPiece gather;
  std::int64_t chunk;
  static const char* fault(Numbers p) {
    return p[3] >= 1 && p[3] <= 1e15 ? nullptr : "chunk must be at least one token";
  }
  explicit ContextGather(Numbers p) : gather(p), chunk(static_cast<std::int64_t>(p[3])) {}

  double run(std::int64_t context) const noexcept {
    if (context <= 0) return 0;
    const auto gathers = static_cast<double>((context + chunk - 1) / chunk);
    return gathers * laws::two_piece(gather.floor, gather.transition, gather.peak,
                                     static_cast<double>(context) / gathers);
  }
  Cost operator()(const Context& c, const Inputs& in) const noexcept {
    const Batch& batch = c.batch;
    if (c.f[in[0]] == 1) {  // no order to find
      std::size_t only = 0;
      while (batch.scheduled[only] <= batch.decode_threshold || batch.scheduled[only] <= 0) ++only;
      return {run(batch.computed[only])};
    }
    double total = 0;
    std::int64_t context = 0;
    // Ascending order without sorting: visit each distinct chunk length in turn, requests in batch order.
    for (std::int64_t length = batch.decode_threshold;;) {
      std::int64_t next = INT64_MAX;
      for (const std::int32_t s : batch.scheduled) {
        if (s > length && s > 0 && s < next) next = s;
      }
      if (next == INT64_MAX) break;
      length = next;
      for (std::size_t i = 0; i < batch.scheduled.size(); ++i) {
        if (batch.scheduled[i] != length) continue;
        if (batch.computed[i] > 0) {
          context += batch.computed[i];
        } else {
          total += run(context);
          context = 0;
        }
      }
    }
    return {total + run(context)};
  }
};

}  // namespace steppe::terms
