"""Hypothesis strategies: deployments that differ from the hand-made ones in every number, and batches."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st
from made_documents import ENGINE, Setup, chip_of, graph_of, numbers_of
from reference_oracle import Step

EXPERT_MODELS = ("mixture", "windows", "latent", "delta", "scan", "keyed", "pooled", "indexed")
ALL2ALL = ("allgather_reducescatter", "deepep_low_latency", "deepep_high_throughput", "flashinfer_nvlink_two_sided")
OPTIONAL = (
    "attention_decode_rate", "attention_decode_floor", "attention_decode_rate_swa", "attention_decode_floor_mla",
    "attention_decode_rate_mla", "attention_decode_rate_sparse_mla", "attention_prefill_work_scale",
    "attention_prefill_floor", "moe_routing_imbalance_median", "recurrent_decode_rate_gdn", "recurrent_decode_rate_kda",
    "recurrent_decode_floor_mamba2", "host_launch_per_kernel", "host_replay_graph_per_step",
    "host_launch_eager_per_layer",
)  # fmt: skip
FACTORS = (0.6, 0.83, 1.0, 1.0, 1.27, 1.9)


def _parallel(draw: st.DrawFn, model: str, part: str) -> dict[str, Any]:
    """Widths the engine accepts for the model, over one or more nodes."""
    tp = draw(st.sampled_from((1, 2, 4, 8)))
    out: dict[str, Any] = {"tp": tp, "pp": 1, "dp": 1}
    if model in EXPERT_MODELS:
        out["dp"] = draw(st.sampled_from([dp for dp in (1, 1, 2, 4) if tp * dp <= 16]))
        out["enable_expert_parallel"] = draw(st.booleans())
        if tp * out["dp"] == 1:
            out["enable_expert_parallel"] = False
    if model == "latent":
        out |= draw(st.sampled_from(({}, {}, {"pcp": 2, "dp": 1}, {"dcp": tp})))
    elif model == "plain" and tp == 8:
        out |= draw(st.sampled_from(({}, {"dcp": 2}, {"dcp": 4})))
    elif model == "indexed" and part == "part-nine":
        out |= draw(st.sampled_from(({}, {"dcp": tp}, {"pcp": 2, "dp": 1}, {"pcp": 2, "dcp": 2, "dp": 1},
                                     {"pcp": 2, "dcp": 2 * tp, "dp": 1})))  # fmt: skip
    return out


def _engine(draw: st.DrawFn, model: str, part: str, parallel: dict[str, Any]) -> dict[str, Any]:
    out = dict(ENGINE)
    modes = ["NONE", "PIECEWISE", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
    if parallel.get("pcp", 1) == 1:
        modes.append("FULL")
        if draw(st.booleans()):
            out["speculative"] = {"method": "ngram", "num_spec_tokens": draw(st.integers(1, 4))}
    out["cudagraph_mode"] = draw(st.sampled_from(modes))
    out["max_num_seqs"] = draw(st.sampled_from((8, 64, 256, 1024)))
    out["max_num_batched_tokens"] = draw(st.sampled_from((1024, 8192)))
    if parallel.get("enable_expert_parallel") or parallel["dp"] > 1:
        out["all2all_backend"] = draw(st.sampled_from(ALL2ALL))
    if parallel.get("dcp", 1) > 1:
        out["cp_kv_cache_interleave_size"] = draw(st.sampled_from((1, 8, 64)))
        if draw(st.booleans()):
            out["max_model_len"] = draw(st.sampled_from((4096, 1 << 20)))
        if parallel.get("pcp", 1) == 1 and model != "indexed":
            out["dcp_comm_backend"] = draw(st.sampled_from(("ag_rs", "a2a")))
    if model == "indexed" and part == "part-nine":
        out["cache_dtype"] = (
            "fp8_ds_mla" if parallel.get("dcp", 1) > 1 else draw(st.sampled_from(("auto", "fp8_ds_mla")))
        )
    elif model not in ("pooled", "indexed") and part != "part-eight":
        out["cache_dtype"] = draw(st.sampled_from(("auto", "fp8")))
    if model in ("plain", "mixture") and draw(st.booleans()):
        out["quantization"] = "fp8"
    return out


def _graph(draw: st.DrawFn, model: str, parallel: dict[str, Any]) -> dict[str, Any]:
    """The model with other sizes; what the engine asks of them still holds."""
    graph = graph_of(model)
    hidden = graph["global"]["hidden_size"]
    new_hidden = 64 * draw(st.integers(8, 96))
    shards = parallel["tp"] * parallel["dp"] * parallel.get("pcp", 1)
    graph["global"]["hidden_size"] = new_hidden
    if model in ("plain", "mixture", "delta", "scan"):
        graph["global"]["weight_dtype"] = draw(st.sampled_from(("bf16", "fp8", "nvfp4", "int4", "mxfp4")))
    graph["stack"]["repeat"] = draw(st.integers(1, 40))
    window = draw(st.integers(16, 700))
    for kind in graph["layer_kinds"]:
        for node in kind["nodes"]:
            if node["op"] in ("GEMM", "GroupedGEMM"):
                square = node["n"] == node["k"]
                node["k"] = new_hidden if node["k"] == hidden else 64 * draw(st.integers(1, 80))
                node["n"] = node["k"] if square else 64 * draw(st.integers(1, 200))
            if node["op"] == "GroupedGEMM":
                node["n"] = 16 * shards * draw(st.integers(1, 12))
                node["experts"] = draw(st.integers(max(2, shards), 300))
                node["top_k"] = draw(st.integers(1, min(node["experts"], 24)))
                if node.get("latent_size"):
                    node["latent_size"] = node["k"]
            elif node["op"] == "Elementwise" and "bytes_per_token" in node:
                node["bytes_per_token"] = draw(st.integers(2, 40000))
            elif node["op"] == "Attention":
                if node["kind"] == "swa":
                    node["window"] = window
                if node.get("index_topk"):
                    node["index_topk"] = draw(st.integers(16, 3000))
                if node["kind"] in ("gqa", "swa") and not node.get("role"):
                    node["n_kv"] = 2 if parallel.get("dcp", 1) > 1 else draw(st.sampled_from((1, 2, 4, 8)))
                    node["n_q"] = node["n_kv"] * 8 * draw(st.integers(1, 4))
                    node["d_h"] = draw(st.sampled_from((64, 128, 256)))
    for node in graph["head"]:
        if node["op"] == "GEMM":
            node["n"], node["k"] = graph["global"]["vocab_size"], new_hidden
    return graph


@st.composite
def setups(draw: st.DrawFn, models: tuple[str, ...]) -> Setup:
    """A deployment the engine would start, with numbers of its own."""
    model = draw(st.sampled_from(models))
    parts = ["part-nine", "part-ten", "part-rack"]
    part = draw(st.sampled_from(parts if model in ("indexed", "pooled") else [*parts, "part-eight"]))
    parallel = _parallel(draw, model, part)
    graph, chip = _graph(draw, model, parallel), chip_of(part)
    for key in ("TFlopsPeak", "TFlopsFP8", "TFlopsNVFP4", "BwPeakTBs"):
        if key in chip:
            chip[key] = chip[key] * draw(st.sampled_from((0.9, 1.0, 1.1)))
    chip["SMCount"] = draw(st.integers(60, 200))
    numbers = numbers_of(part, shape=draw(st.booleans()))
    chance = Random(draw(st.integers(0, 2**20)))  # one draw for a hundred factors
    numbers = {name: value * chance.choice(FACTORS) for name, value in numbers.items()}
    for name in draw(st.lists(st.sampled_from(OPTIONAL), max_size=3)):
        numbers.pop(name, None)
    return Setup(model, part, graph, chip, numbers, parallel, _engine(draw, model, part, parallel))


contexts = st.one_of(st.integers(0, 300), st.integers(0, 3500), st.just(0))
chunks = st.one_of(st.integers(0, 6), st.sampled_from((1, 4, 17, 128, 129, 1000)), st.integers(0, 550))


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """A batch of up to a dozen requests; some schedule nothing."""
    requests = draw(st.lists(st.tuples(chunks, contexts), max_size=12))
    if draw(st.booleans()):
        requests = [(1, computed) for _, computed in requests] + requests[:1]
    return Step(
        requests,
        threshold=draw(st.sampled_from((0, 1, 1, 1, 4, 64))),
        sm_budget=draw(st.sampled_from((0, 0, 1, 30, 59, 400))),
        pad=draw(st.sampled_from((0, 0, 0, 7, 600))),
    )
