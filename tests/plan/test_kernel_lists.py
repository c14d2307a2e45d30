"""The kernels a step launches, model by model: exactly these, with these shapes on a rank, and so many layers of them.

Written by hand from the engine's modules. A product is `name outputs x inputs`, a small kernel `name bytes a row`,
attention `query/key-value heads x head size`, a collective `name bytes a row`; `in N`: as so many launches.
"""

from __future__ import annotations

from typing import Any

import pytest

import steppe
from steppe.catalog import Catalog
from steppe.documents import load_coefficient_set


def small_kernel(part: str) -> tuple[float, float]:
    """Seconds a launch and bytes a second of small kernels on a part."""
    found = load_coefficient_set(Catalog(None).root / "coefficients" / f"{part}-refined.json")
    (law,) = (each for each in found.laws if each.law == "elementwise")
    p = law.params
    return float(p["floor_us"]) * 1e-6, float(p["hbm_fraction"]) * float(p["bw_Bps"])


def line(term: Any, all_terms: Any, floor: float, rate: float) -> str:
    """A term as the tables below write it."""
    p = term.params
    if term.law == "gemm":
        return f"{term.name} {p[0]:g} x {p[1]:g}"
    if term.law == "affine" and " decode" not in term.name:
        launches = round(p[0] / floor)
        return f"{term.name} {p[1] * rate:.0f}" + (f" in {launches}" if launches > 1 else "")
    if term.law in ("attention_decode", "attention_prefill"):
        return f"{term.name} {p[0]:g}/{p[1]:g} x {p[2]:g}"
    if term.law == "experts":
        return f"{term.name} {p[0]:g} over {p[2]:g}, top {p[1]:g}, {p[3]:g} x {p[4]:g}"
    if term.law in ("curve", "two_protocol"):
        return f"{term.name} {p[0]:g}"
    if term.law in ("mla", "sparse"):
        return f"{term.name} {p[0]:g} heads"
    if term.law == "hidden_behind":
        hidden = ", ".join(each.name for each in all_terms[int(p[0]) : int(p[1]) + 1])
        return f"{hidden} behind {all_terms[int(p[2])].name} to {p[3]:g} rows"
    return str(term.name)


def kernels(**deployment: Any) -> dict[str, tuple[float, list[str]]]:
    """Layers and kernels of every stage."""
    built = steppe.Kernel.build(**deployment)
    plan, small = built._core.plan, small_kernel(deployment["hardware"])
    out = {}
    for index, stage in enumerate(plan.stages):
        found = [line(term, plan.terms, *small) for term in plan.terms if term.stage == index]
        if found:
            out[stage.name] = (stage.layers, sorted(found))
    assert all(term.count == 1 for term in plan.terms)
    return out


def stage(layers: int, *groups: str) -> tuple[float, list[str]]:
    """A stage of the tables: kernels separated by semicolons."""
    return float(layers), sorted(each.strip() for group in groups for each in group.split(";"))


def norms(hidden: int) -> str:
    """The two norms of a layer read and write hidden state and residual, 16 bits each."""
    return f"norm_in {8 * hidden}; norm_mid {8 * hidden}"


def reduces(hidden: int) -> str:
    return f"reduce_mixer {2 * hidden}; reduce_mlp {2 * hidden}"


def head(hidden: int, vocab: int, tp: int = 1) -> dict[str, tuple[float, list[str]]]:
    """Final norm and logits, and what a step runs once."""
    once = [f"embedding {4 * hidden}; sampler {14 * vocab} in 6"]
    if tp > 1:
        once.append(f"embedding reduce {2 * hidden}; logits gather {2 * vocab}")
    return {
        "head": stage(1, f"norm_out {4 * hidden}; lm_head {vocab // tp} x {hidden}"),
        "once": stage(1, *once),
    }


LLAMA_8B = {"model": "llama-3.1-8b-instruct", "hardware": "h100"}
QWEN3 = {"model": "qwen3-32b", "hardware": "h100"}
MINIMAX = {"model": "minimax-m2.5", "hardware": "b200"}
GPT_OSS = {"model": "gpt-oss-120b", "hardware": "h200"}
KIMI = {"model": "kimi-k2.5", "hardware": "h200"}
KIMI_FP4 = {"model": "kimi-k2.5-nvfp4", "hardware": "b200"}
DEEPSEEK = {"model": "deepseek-v3.2", "hardware": "h200"}
QWEN3_NEXT = {"model": "qwen3-next-80b-a3b-instruct", "hardware": "h200"}

SHARED_FP4 = (
    "shared gate_up 1024 x 7168; shared activation 3072; shared down 7168 x 512; shared add 43008;"
    "shared gate_up, shared activation, shared down behind experts to 256 rows"
)
NEXT_MOE = (
    "router 512 x 2048; experts 512 over 1, top 10, 2048 x 128; shared gate_up 256 x 2048; shared activation 768;"
    "shared down 2048 x 128; shared_gate 1 x 2048; gate 8192; shared add 12288;"
    "shared gate_up, shared activation, shared down, shared_gate, gate behind experts to 256 rows"
)

CASES: dict[str, tuple[dict[str, Any], dict[str, tuple[float, list[str]]]]] = {
    "llama": (
        LLAMA_8B,
        {
            "full_dense": stage(
                32, norms(4096), "qkv 6144 x 4096; rope 20480",
                "attention decode 32/8 x 128; attention prefill 32/8 x 128",
                "out 4096 x 4096; gate_up 28672 x 4096; activation 86016; down 4096 x 14336",
            ),
            **head(4096, 128256),
        },
    ),
    "llama tp 4": (
        {**LLAMA_8B, "tp": 4},
        {
            "full_dense": stage(
                32, norms(4096), "qkv 1536 x 4096; rope 5120; attention decode 8/2 x 128; attention prefill 8/2 x 128",
                "out 4096 x 1024; gate_up 7168 x 4096; activation 21504; down 4096 x 3584", reduces(4096),
            ),
            **head(4096, 128256, 4),
        },
    ),
    "qwen3 tp 4": (
        {**QWEN3, "tp": 4},
        {
            "full_dense": stage(
                64, norms(5120), "qkv 2560 x 5120; qk_norm 9216; rope 9216",
                "attention decode 16/2 x 128; attention prefill 16/2 x 128",
                "out 5120 x 2048; gate_up 12800 x 5120; activation 38400; down 5120 x 6400", reduces(5120),
            ),
            **head(5120, 151936, 4),
        },
    ),
    "minimax": (
        MINIMAX,
        {
            "full_moe": stage(
                62, norms(3072), "qkv 8192 x 3072; qk_norm 43008 in 2; rope 28672",
                "attention decode 48/8 x 128; attention prefill 48/8 x 128; out 3072 x 6144",
                "gate 18432; router 256 x 6144; experts 256 over 1, top 8, 3072 x 1536",
            ),
            **head(3072, 200064),
        },
    ),
    # The norm of queries and keys runs over the heads of all ranks: five kernels around a sum of two numbers a row.
    "minimax tp 4": (
        {**MINIMAX, "tp": 4},
        {
            "full_moe": stage(
                62, norms(3072), "qkv 2048 x 3072; qk_norm 10752 in 5; qk_norm_reduce 8; rope 7168",
                "attention decode 12/2 x 128; attention prefill 12/2 x 128; out 3072 x 1536",
                "gate 18432; router 256 x 6144; experts 256 over 1, top 8, 3072 x 384", reduces(3072),
            ),
            **head(3072, 200064, 4),
        },
    ),
    "minimax tp 4 ep": (
        {**MINIMAX, "tp": 4, "enable_expert_parallel": True},
        {
            "full_moe": stage(
                62, norms(3072), "qkv 2048 x 3072; qk_norm 10752 in 5; qk_norm_reduce 8; rope 7168",
                "attention decode 12/2 x 128; attention prefill 12/2 x 128; out 3072 x 1536",
                "gate 18432; router 256 x 6144; experts 256 over 4, top 8, 3072 x 1536", reduces(3072),
            ),
            **head(3072, 200064, 4),
        },
    ),
    # Rows of all ranks meet at the experts: gathered at 8 bits with scales and the router's output, summed at 16.
    "minimax dp 4 ep": (
        {**MINIMAX, "dp": 4, "enable_expert_parallel": True},
        {
            "full_moe": stage(
                62, norms(3072), "qkv 8192 x 3072; qk_norm 43008 in 2; rope 28672",
                "attention decode 48/8 x 128; attention prefill 48/8 x 128; out 3072 x 6144",
                "gate 18432; router 256 x 6144; experts 256 over 4, top 8, 3072 x 1536",
                f"dispatch gather {3072 * (1 + 4 / 128) + 4 * 256:g}; combine scatter 6144",
            ),
            **head(3072, 200064),
        },
    ),
    "gpt-oss tp 4": (
        {**GPT_OSS, "tp": 4},
        {
            f"{name}_moe": stage(
                18, norms(2880), "qkv 1280 x 2880; rope 4608; out 2880 x 1024; router 128 x 2880",
                f"attention decode{note} 16/2 x 64; attention prefill{note} 16/2 x 64",
                "experts 128 over 1, top 4, 2880 x 720", reduces(2880),
            )
            for name, note in (("window", " (window 128)"), ("full", ""))
        }
        | head(2880, 201088, 4),
    ),
    # The module law covers everything between the norm and the sum; shared experts are 16-bit, hence listed apart.
    "kimi tp 8": (
        {**KIMI, "tp": 8},
        {
            "mla_dense": stage(
                1, norms(7168), "latent attention 8 heads; gate_up 4608 x 7168; activation 13824; down 7168 x 2304",
                reduces(7168),
            ),
            "mla_moe": stage(
                60, norms(7168), "latent attention 8 heads; router 384 x 7168; experts 384 over 1, top 8, 7168 x 256",
                "shared_gate_up 512 x 7168; activation 1536; shared_down 7168 x 256; shared add 43008",
                "shared_gate_up, activation, shared_down behind experts to 256 rows", reduces(7168),
            ),
            **head(7168, 163840, 8),
        },
    ),
    "kimi fp4 tp 4 ep": (
        {**KIMI_FP4, "tp": 4, "enable_expert_parallel": True},
        {
            "mla_dense": stage(
                1, norms(7168), "latent attention 16 heads; gate_up 9216 x 7168; activation 27648; down 7168 x 4608",
                reduces(7168),
            ),
            "mla_moe": stage(
                60, norms(7168), "latent attention 16 heads; router 384 x 7168", SHARED_FP4,
                "experts 384 over 4, top 8, 7168 x 2048", reduces(7168),
            ),
            **head(7168, 163840, 4),
        },
    ),
    "deepseek tp 8": (
        {**DEEPSEEK, "tp": 8},
        {
            "dsa_dense": stage(
                3, norms(7168), "sparse attention decode 16 heads; sparse attention prefill 16 heads",
                "gate_up 4608 x 7168; activation 13824; down 7168 x 2304", reduces(7168),
            ),
            "dsa_moe": stage(
                58, norms(7168), "sparse attention decode 16 heads; sparse attention prefill 16 heads",
                "router 256 x 7168; experts 256 over 1, top 8, 7168 x 256",
                "shared gate_up 512 x 7168; shared activation 1536; shared down 7168 x 256; shared add 43008",
                "shared gate_up, shared activation, shared down behind experts to 256 rows", reduces(7168),
            ),
            **head(7168, 129280, 8),
        },
    ),
    "deepseek dp 8 ep": (
        {**DEEPSEEK, "dp": 8, "enable_expert_parallel": True},
        {
            "dsa_dense": stage(
                3, norms(7168), "sparse attention decode 128 heads; sparse attention prefill 128 heads",
                "gate_up 36864 x 7168; activation 110592; down 7168 x 18432",
            ),
            "dsa_moe": stage(
                58, norms(7168), "sparse attention decode 128 heads; sparse attention prefill 128 heads",
                "router 256 x 7168; experts 256 over 8, top 8, 7168 x 2048",
                "shared gate_up 4096 x 7168; shared activation 12288; shared down 7168 x 2048; shared add 43008",
                "shared gate_up, shared activation, shared down behind experts to 256 rows",
                "dispatch gather 8416; combine scatter 14336",
            ),
            **head(7168, 129280),
        },
    ),
    # Two projections into the delta net, the gate of the shared expert beside the shared expert. The kernel of norm and
    # rope also parts queries from the output gate: 4 bytes each of 16 heads, 2 of keys and 16 of the gate, 256 wide.
    "qwen3-next tp 4": (
        {**QWEN3_NEXT, "tp": 4},
        {
            "gdn_moe": stage(
                36, norms(2048), "in_proj 3072 x 2048; in_proj_ba 16 x 2048; norm_gate 6144; out 2048 x 1024",
                "gdn conv decode; gdn conv prefill; gdn scan decode; gdn scan prefill", NEXT_MOE, reduces(2048),
            ),
            "full_moe": stage(
                12, norms(2048), "qkv 2304 x 2048; attn_gate 6144; out 2048 x 1024; rope 8704",
                "attention decode 4/1 x 256; attention prefill 4/1 x 256", NEXT_MOE, reduces(2048),
            ),
            **head(2048, 151936, 4),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("deployment", "want"), CASES.values(), ids=CASES)
def test_kernels(deployment: dict[str, Any], want: dict[str, tuple[float, list[str]]]) -> None:
    got = kernels(**deployment)
    assert list(got) == list(want)
    for name, (layers, expected) in want.items():
        assert got[name][0] == layers
        assert got[name][1] == expected
