"""Laws nobody measured on a part: which measured law stands in, why, and what would replace it.

A stand-in keeps the other law's parameters; where it comes from another part, SM count, L2 size, HBM rate and tensor
peak are
replaced by this part's. Every one carries method `assumed` and a rationale; nothing is filled in silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steppe.calibrate.fit import Fitted
from steppe.calibrate.parts import Part
from steppe.calibrate.transfer import carried

HOPPER = ("h100", "h200")
BLACKWELL = ("b200", "b300", "gb200-nvl72", "gb300")
GDDR = ("l40s", "rtx-pro-6000")
EVERY = (*HOPPER, *BLACKWELL, *GDDR, "a100-sxm")


@dataclass(frozen=True, slots=True)
class StandIn:
    """`law`/`key` on `parts` takes the parameters of `source` (on `source_part`, or the part itself)."""

    parts: tuple[str, ...]
    law: str
    key: str
    source: str
    why: str
    replaced_by: str
    source_part: str = ""
    multiplied: str = ""  # type the tensor cores multiply in, where the peak changes with the source
    over: Mapping[str, Any] = field(default_factory=dict)


def _attention(parts: tuple[str, ...], key: str, source: str, why: str, part: str = "", **over: Any) -> list[StandIn]:
    table = "an attention table of this path on this part"
    return [StandIn(parts, f"attention_{phase}", key, source, why, table, part, over=over if phase == "decode" else {})
            for phase in ("decode", "prefill")]  # fmt: skip


DENSE_16 = "weights are widened to 16 bit inside a Marlin kernel: the 16-bit law with the weights' own bytes"
GEMM_TABLE = "a gemm_perf table of this type on this part"
MOE_TABLE = "a moe_perf table of this kernel on this part"

RULES: list[StandIn] = [
    # ---- dense
    StandIn(EVERY, "gemm", "int4_wo", "bfloat16", DENSE_16, GEMM_TABLE, over={"w_bytes": 0.5625}),
    StandIn(("a100-sxm",), "gemm", "fp8", "bfloat16", DENSE_16, GEMM_TABLE, over={"w_bytes": 1.0}),
    StandIn(("a100-sxm",), "gemm", "fp8_block", "bfloat16", DENSE_16, GEMM_TABLE, over={"w_bytes": 1.0}),
    StandIn((*HOPPER, "l40s", "a100-sxm"), "gemm", "nvfp4", "bfloat16", DENSE_16, GEMM_TABLE, over={"w_bytes": 0.5625}),
    StandIn(GDDR, "gemm", "fp8_block", "fp8",
            "its block-fp8 table is launch-bound eager timing (180-425 us flat): this part's fp8 law", GEMM_TABLE),
    # ---- experts
    StandIn(BLACKWELL, "moe", "fp8_block/fp8moe_triton", "fp8_block/fp8moe_triton",
            "the Triton block-fp8 experts are measured on B200 only", MOE_TABLE, "b200", "fp8"),
    StandIn(BLACKWELL, "moe", "bfloat16/unquantizedfusedmoe_triton", "bfloat16/unquantizedfusedmoe_triton",
            "the Triton 16-bit experts are measured on B200 only", MOE_TABLE, "b200", "bfloat16"),
    StandIn(BLACKWELL, "moe", "fp8/modeloptfp8moe_triton", "fp8/modeloptfp8moe_triton",
            "the Triton fp8 experts are measured on B200 only", MOE_TABLE, "b200", "fp8"),
    StandIn(("h100",), "moe", "fp8/modeloptfp8moe_triton", "fp8/modeloptfp8moe_triton",
            "the Triton per-tensor fp8 experts are measured on H200", MOE_TABLE, "h200", "fp8"),
    StandIn(BLACKWELL, "moe", "nvfp4/flashinfer_cutlass", "nvfp4/expertsmodular",
            "the CUTLASS nvfp4 experts are measured on one geometry only: the modular trtllm-gen law", MOE_TABLE),
    StandIn((*HOPPER, "l40s"), "moe", "nvfp4/marlin", "int4_wo/marlin",
            "both widen 4-bit weights with 16-value scales inside the Marlin kernel", MOE_TABLE),
    StandIn(("rtx-pro-6000",), "moe", "fp8_block/fp8moe_triton", "fp8_block/fp8moe_triton",
            "no block-fp8 experts table on this part: L40S's law", MOE_TABLE, "l40s", "fp8"),
    StandIn(("rtx-pro-6000",), "moe", "bfloat16/unquantizedfusedmoe_triton", "bfloat16/unquantizedfusedmoe_triton",
            "no Triton 16-bit experts table on this part: L40S's law", MOE_TABLE, "l40s", "bfloat16"),
    StandIn(("a100-sxm",), "moe", "int4_wo/marlin", "int4_wo/marlin",
            "no quantised experts table on A100: H100's law", MOE_TABLE, "h100", "bfloat16"),
    StandIn(("a100-sxm",), "moe", "w4a16_mxfp4/marlin", "w4a16_mxfp4/marlin",
            "no mxfp4 experts table on A100: L40S's law", MOE_TABLE, "l40s", "bfloat16"),
    StandIn(("a100-sxm",), "moe", "fp8_block/fp8moe_triton", "bfloat16/unquantizedfusedmoe_triton",
            "no fp8 tensor cores: " + DENSE_16, MOE_TABLE, over={"w_bytes": 1.0}),
    # ---- attention
    *_attention(("a100-sxm",), "fa2/bfloat16/swa", "fa2/bfloat16/full",
                "no windowed table on A100: its full-attention law (the formula has the windowed path)"),
    *_attention(("a100-sxm",), "fi/fp8/full", "fi/fp8/full", "no fp8 cache table on A100: L40S's law", "l40s"),
    *_attention(("a100-sxm",), "fi/fp8/swa", "fi/fp8/swa", "no fp8 cache table on A100: L40S's law", "l40s"),
    *_attention((*BLACKWELL, *GDDR), "triton/bfloat16/full", "triton/fp8/full",
                "the Triton kernel is measured with an fp8 cache only", e=2),
    *_attention((*BLACKWELL, *GDDR), "triton/bfloat16/swa", "triton/fp8/swa",
                "the Triton kernel is measured with an fp8 cache only", e=2),
    *_attention((*HOPPER, "a100-sxm"), "triton/bfloat16/full", "triton/fp8/full",
                "no Triton attention table on this part: B200's", "b200", e=2),
    *_attention((*HOPPER, "a100-sxm"), "triton/bfloat16/swa", "triton/fp8/swa",
                "no Triton attention table on this part: B200's", "b200", e=2),
    *_attention(HOPPER, "fa4/fp8/full/d512", "fa4/bfloat16/full/d512",
                "512-wide heads are measured with a 16-bit cache only", e=1),
    *_attention(GDDR, "fa2/bfloat16/full/d512", "triton/fp8/full",
                "512-wide heads run the Triton kernel, measured with fp8 and narrower heads", path="triton", e=2,
                wp=64),
    # ---- latent and sparse
    StandIn(("a100-sxm",), "mla_decode", "TRITON_MLA/bfloat16", "TRITON_MLA/bfloat16",
            "no MLA table on A100: L40S's law",
            "an MLA module table on this part", "l40s"),
    StandIn(("a100-sxm",), "mla_context", "FLASH_ATTN/bfloat16", "FLASH_ATTN/bfloat16",
            "no MLA table on A100: L40S's law",
            "an MLA module table on this part", "l40s"),
    StandIn(("l40s",), "mla_decode", "TRITON_MLA/fp8", "TRITON_MLA/fp8",
            "no fp8 MLA decode table on L40S: RTX PRO 6000's",
            "an MLA module table on this part", "rtx-pro-6000"),
    *[StandIn(("a100-sxm",), f"sparse_{phase}", key, key, "no block-sparse table on A100: L40S's law",
              "an MSA module table on this part", "l40s")
      for phase in ("decode", "context")
      for key in ("msa/MiniMaxM3SparseTritonImpl/bfloat16", "msa/MiniMaxM3SparseTritonImpl/fp8")],
    # ---- recurrent
    StandIn(("b200", *GDDR), "recurrent", "conv/kda/context", "conv/gdn/context",
            "the KDA table's convolution carries 430-900 us of host work: the same kernel in the GDN table",
            "a KDA table of the current lane on this part"),
    *[StandIn(("a100-sxm",), "recurrent", k, k, "no recurrent table on A100: H100's law",
              "a recurrent table on this part", "h100")
      for k in [f"{r}/{m}/{p}" for m in ("gdn", "kda", "mamba2") for p in ("context", "decode")
                for r in ("conv", "scan")
                if (r, m) != ("scan", "mamba2")]],
    StandIn(EVERY, "recurrent", "scan/mamba2/decode", "scan/gdn/decode",
            "no table times the SSD scan: state bytes at the gated delta net's floor and rate", "a mamba2 scan table"),
    StandIn(EVERY, "recurrent", "scan/mamba2/context", "scan/gdn/context",
            "no table times the SSD scan: the gated delta net's chunked scan (a state of 128 x 128 a head)",
            "a mamba2 scan table"),
    StandIn(("a100-sxm",), "elementwise", "default", "default", "no small-kernel table on A100: H100's floor",
            "a scale_matrix_perf table of this part", "h100"),
    # ---- collectives: Blackwell parts on one NVLink generation
    *[StandIn(("b200",), "all_reduce_curve", f"0.31.0/{n}", f"0.31.0/{n}", "0.31.0 is measured on B300, same NVLink",
              "a custom_allreduce_perf table of 0.31.0 on this part", "b300") for n in (2, 4, 8)],
    *[StandIn(("gb200-nvl72",), "all_reduce_curve", f"0.27.0/{n}", f"0.27.0/{n}",
              "widths over 4 are measured on GB300, same NVLink domain",
              "a custom_allreduce_perf table of this width on this part", "gb300") for n in (8, 16)],
    *[StandIn(("gb200-nvl72", "gb300"), "collective", f"vllm_graph/all_reduce/{n}", f"vllm_graph/all_reduce/{n}",
              "widths over 4 are measured on GB300, same NVLink domain",
              "a custom_allreduce_perf table of this width on this part", "gb300") for n in (8, 16)],
    *[StandIn(("gb300",), "collective", f"nccl/{op}/{n}", f"nccl/{op}/{n}", "this width is measured on GB200 only",
              "an nccl_perf table of this width on this part", "gb200-nvl72")
      for op in ("all_gather", "all_reduce", "alltoall", "reduce_scatter") for n in (8, 16)],
]  # fmt: skip


def _rates(part: Part, multiplied: str) -> dict[str, float]:
    rates = {"sms": part.sms, "bw_Bps": part.hbm * 1e6, "l2_B": part.l2}
    if multiplied:
        rates["peak_flops"] = part.peak[multiplied] * 1e6
    return rates


def stand_ins(measured: list[Fitted], parts: list[Part]) -> list[Fitted]:
    """Assumed laws for what `measured` lacks on `parts`. A rule whose source is missing, or whose law exists, is passed
    over; earlier rules win."""
    have = {(f.part, f.law, f.key): f for f in measured}
    out = carried(have, parts)
    have |= {(f.part, f.law, f.key): f for f in out}
    for rule in RULES:
        for part in parts:
            if part.name not in rule.parts or (part.name, rule.law, rule.key) in have:
                continue
            source = have.get((rule.source_part or part.name, rule.law, rule.source))
            if source is None:
                continue
            params = dict(source.params)
            if rule.source_part and rule.source_part != part.name:
                params.update({k: v for k, v in _rates(part, rule.multiplied).items() if k in params})
            params.update(rule.over)
            origin = f"{source.law} {source.key} of {source.part}"
            made = Fitted(
                rule.law, rule.key, part.name, params, source.data, method="assumed",
                rationale=f"{rule.why}. Parameters of {origin}; {rule.replaced_by} would replace it.",
                extra={"copied_from": origin},
            )  # fmt: skip
            have[(part.name, rule.law, rule.key)] = made
            out.append(made)
    return out
