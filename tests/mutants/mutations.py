"""The mutations: one wrong character or number in a law or in the composition, and the tests that must notice.

A mutation whose text does not occur exactly once in its file is an error, so that code that moves takes its mutations
with it.
"""

from __future__ import annotations

from dataclasses import dataclass

LAWS, SRC = "cpp/include/steppe/laws/", "cpp/src/"
PLANS, RESOLVE = "python/steppe/plan/", "python/steppe/resolve/"

# What runs for a mutation, cheapest first; the first that fails kills it.
HEADER = ("header",)  # cpp/tests/test_laws.cpp against the headers alone
CORE = ("features", "pricing", "oracle")
PLAN = ("relations", "oracle")
REFINED = ("lists", "refined")


@dataclass(frozen=True)
class Mutation:
    """Replace `old` by `new` in `file`; `checks` are names of `run.CHECKS`."""

    file: str
    old: str
    new: str
    checks: tuple[str, ...]


def _law(file: str, old: str, new: str) -> Mutation:
    return Mutation(LAWS + file, old, new, HEADER)


def _core(file: str, old: str, new: str) -> Mutation:
    return Mutation(SRC + file, old, new, CORE)


def _plan(file: str, old: str, new: str) -> Mutation:
    return Mutation(PLANS + file, old, new, PLAN)


def _refined(file: str, old: str, new: str) -> Mutation:
    return Mutation(PLANS + file, old, new, REFINED)


MUTATIONS: tuple[Mutation, ...] = (
    # laws
    _law("reference.hpp", "return constant + slope * x;", "return constant - slope * x;"),
    _law("reference.hpp", "std::max(floor + transition_slope * x, peak_slope * x)", "floor + transition_slope * x"),
    _law("reference.hpp", "-whole * std::expm1(draws * log_miss)", "whole * std::expm1(draws * log_miss)"),
    _law("reference.hpp", "(m + m_half) / m * derate", "(m + m_half) / m"),
    _law("gemm.hpp", "theta * std::ceil(x) + (1 - theta) * x", "theta * std::ceil(x)"),
    _law("gemm.hpp", "std::max(x, 1.0 / 32)", "x"),
    _law("gemm.hpp", "m > tiles[i].top_m", "m >= tiles[i].top_m"),
    _law("gemm.hpp", "us = std::max(us, tile_us(tiles[i - 1], tiles[i - 1].top_m))", "us = us"),
    _law("gemm.hpp", "m >= align_from && std::fmod(m, 4) != 0", "m >= align_from"),
    _law("gemm.hpp", "(m > 1 ? multi_us : 0)", "multi_us"),
    _law("gemm.hpp", "cold + (1 - cold) / act_gain", "cold + (1 - cold) * act_gain"),
    _law("experts.hpp", "std::min(top_k, local)", "top_k"),
    _law("experts.hpp", "1 - 1 / (base * base)", "1 - 1 / base"),
    _law("experts.hpp", "{16.0, 32.0, 64.0, 128.0}", "{16.0, 32.0, 64.0}"),
    _law("experts.hpp", "all_pairs ? tokens * top_k : r.pairs", "r.pairs"),
    _law("attention.hpp", "nosplit(b) ? 0 : l2 / (l2 + 300.0 * 300.0)", "l2 / (l2 + 300.0 * 300.0)"),
    _law("attention.hpp", "std::ceil(rows / 128)", "1"),
    _law("attention.hpp", "return std::max(bytes / rate, slowest);", "return bytes / rate;"),
    _law("attention.hpp", "io / (v * hbm) / (1 + r2 * r2)", "io / (v * hbm)"),
    _law("attention.hpp", "/ (0.85 * hbm)", "/ hbm"),
    _law("latent.hpp", "std::ceil(h / 128)", "1"),
    _law("latent.hpp", "b.keys * (k0 + k1 * h) * b.rows / b.requests", "b.keys * (k0 + k1 * h)"),
    _law("latent.hpp", "std::hypot(b.scored * i1, b.scored_max * i2)", "b.scored * i1"),
    _law("recurrent.hpp", "requests > 1 ? t2 : 0", "t2"),
    _law("collective.hpp", "low / std::cbrt(1 + ratio * ratio * ratio)", "low"),
    _law("collective.hpp", "std::exp(last.log_us) * bytes / std::exp2(last.log2_bytes)", "std::exp(last.log_us)"),
    # features and composition in the core
    _core("features.cpp", "std::max<std::int64_t>(1, base + std::min(tokens - base * dcp, stripe))", "base"),
    _core("features.cpp", "n * (n - 1) / 2 - n / 2", "n * (n - 1) / 2"),
    _core("features.cpp", "const std::int32_t second = 2 * pcp - 1 - r;", "const std::int32_t second = pcp + r;"),
    _core("features.cpp", "(2 * pcp - 1) * piece >= s", "(2 * pcp - 1) * piece > s"),
    _core("features.cpp", "(2 * parts + unit) / (2 * unit)", "parts / unit"),
    _core("features.cpp", "n.decode_tokens + n.requests - n.decodes", "n.requests"),
    _core("program.cpp", "totals.overlap += times * (longest + tail);", "totals.overlap += times * longest;"),
    _core("program.cpp", "sums[hidden.own] += law.of", "sums[hidden.own] -= law.of"),
    _core("kernel.cpp", "static_cast<double>(plan.sm_count) / batch.sm_budget", "1.5"),
    # the reference plan
    _plan("reference.py", "constant=slope * gemm.m_half", "constant=slope"),
    _plan("reference.py", "amount, resource = min(", "amount, resource = max("),
    _plan("reference.py", "moved / self.tp / self.hbm", "moved / self.hbm"),
    _plan("collectives.py", "cross = width - per_node", "cross = width"),
    _plan("collectives.py", "return 2 if node.op == \"All2All\" else 1", "return 1"),
    _plan("experts.py", "math.ceil(physical / r.widths.ep)", "(physical // r.widths.ep)"),
    _plan("context_parallel.py", "(out_width + 2) * 2", "out_width * 2"),
    Mutation(RESOLVE + "geometry.py", "max(1, (node.n_kv or 1) // r.widths.tp)", "(node.n_kv or 1)", PLAN),
    # the refined plan
    _refined("refined.py", "(n, k / self.tp) if", "(n / self.tp, k) if"),
    _refined("refined_experts.py", "slices = 1 if w.ep > 1 else w.tp * w.dp", "slices = w.tp * w.dp"),
    _refined("refined_experts.py", "if node.shared_experts or self._listed:", "if node.shared_experts:"),
    _refined("refined_collectives.py", "hidden * element + 4.0 * (node.experts or 0)", "hidden * element"),
    _refined("refined_laws.py", '"wide": float((n / g > 16 and', '"wide": float((n / g > 8 and'),
    _refined("refined_laws.py", "window + self.window_slack(law)) if window", "window) if window"),
)  # fmt: skip
