"""The reference laws written out once more, plainly: from documents as they stand in a file to seconds a resource.

Nothing here reads the package. It is slow and literal on purpose: one function a section of the law book, no lifted
numbers, one request at a time. Seconds and bytes, per rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TERA, US = 1e12, 1e-6
Document = Mapping[str, Any]
Request = tuple[int, int]  # (scheduled, computed)

POINT_TO_POINT = {"deepep_low_latency", "deepep_high_throughput", "flashinfer_nvlink_two_sided"}
SEQUENCE_PARALLEL = {"allgather_reducescatter", "deepep_low_latency", "deepep_high_throughput"}
SMALL_KERNELS = {"rope", "qk_norm", "gate", "activation", "attn_gate"}  # listed by derived graphs, not priced
WIDTH = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5, "mxfp4": 0.5, "int4": 0.5}
COLUMN_ROLES = {"qkv", "q", "k", "v", "gate_up", "in_proj", "shared_up"}


@dataclass(frozen=True)
class Deployed:
    """Documents of one deployment, and the layout it states."""

    graph: Document
    chip: Document
    chip_name: str
    numbers: Mapping[str, float]  # coefficients in scope by name
    tp: int = 1
    dp: int = 1
    pcp: int = 1
    dcp: int = 1
    expert_parallel: bool = False
    gpus_per_node: int = 8
    network: float = 0.0  # GB/s between nodes
    engine: Document = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        return int(self.graph["global"]["hidden_size"])

    @property
    def served(self) -> str:
        stated = str(self.engine.get("quantization") or "")
        return "fp8" if stated == "fp8" else str(self.graph["global"]["weight_dtype"])

    @property
    def ep(self) -> int:
        return self.tp * self.pcp * self.dp if self.expert_parallel else 1

    @property
    def expert_group(self) -> int:
        if self.expert_parallel:
            return self.ep
        return self.tp * self.pcp * self.dp if self.dp > 1 else 1

    @property
    def all2all(self) -> str:
        return str(self.engine.get("all2all_backend") or "allgather_reducescatter")

    @property
    def sequence_parallel_moe(self) -> bool:
        spread = self.ep > 1 and self.tp > 1 and self.dp > 1
        return spread and self.all2all in SEQUENCE_PARALLEL

    @property
    def spec_tokens(self) -> int:
        return int((self.engine.get("speculative") or {}).get("num_spec_tokens", 0))

    @property
    def stripe(self) -> int:
        return int(self.engine.get("cp_kv_cache_interleave_size") or 1)

    def layers(self) -> dict[str, int]:
        """Layers of each kind, in order of appearance."""
        stack, count = self.graph["stack"], {}
        for key, times in (("prologue", 1), ("pattern", stack.get("repeat", 0)), ("epilogue", 1)):
            for name in stack.get(key, []):
                count[name] = count.get(name, 0) + times
        return count

    def nodes(self, kind: str) -> list[Document]:
        return next(each["nodes"] for each in self.graph["layer_kinds"] if each["id"] == kind)


@dataclass(frozen=True)
class Step:
    """A batch as the scheduler states it."""

    requests: Sequence[Request]
    threshold: int = 1
    sm_budget: int = 0
    pad: int = 0


# -- 1. the batch ------------------------------------------------------------------------------------------------------


@dataclass
class Rows:
    """What one rank runs of a step."""

    running: list[Request]
    prefills: list[Request]
    decodes: list[Request]
    tokens: int
    prefill_tokens: int


def rows(d: Deployed, step: Step) -> Rows:
    running = [(s, c) for s, c in step.requests if s > 0]
    prefills = [(s, c) for s, c in running if s > step.threshold]
    decodes = [(s, c) for s, c in running if s <= step.threshold]
    held = sum(s - own_tokens(d, s) for s, _ in prefills)
    total = sum(s for s, _ in running)
    return Rows(running, prefills, decodes, total + step.pad - held, sum(s for s, _ in prefills) - held)


def pieces(d: Deployed, s: int) -> list[list[tuple[int, int]]] | None:
    """(offset, length) runs of a chunk on each prefill-context rank; None where the chunk is not split."""
    if d.pcp == 1:
        return None
    size = math.ceil(s / (2 * d.pcp))
    if d.dcp > 1 and (2 * d.pcp - 1) * size >= s:
        return None
    cuts = [(min(i * size, s), min((i + 1) * size, s)) for i in range(2 * d.pcp)]
    return [[(a, b - a) for a, b in (cuts[r], cuts[2 * d.pcp - 1 - r])] for r in range(d.pcp)]


def own_tokens(d: Deployed, s: int) -> int:
    split = pieces(d, s)
    return s if split is None else max(sum(n for _, n in runs) for runs in split)


def causal_pairs(s: int, c: int, window: int) -> float:
    """Query-key pairs, the chunk's own triangle halved: s*c + s^2/2, or the band of a window."""
    if not window:
        return s * c + s * s / 2
    inside = max(0, min(s, window - c))
    return inside * (c + 1) + inside * (inside - 1) / 2 - inside / 2 + (s - inside) * window


def busiest_pairs(d: Deployed, s: int, c: int, window: int) -> float:
    split = pieces(d, s)
    if split is None:
        return causal_pairs(s, c, window)
    return max(sum(causal_pairs(n, c + at, window) for at, n in runs) for runs in split)


def sharded(d: Deployed, length: int) -> int:
    """Tokens the slowest decode-context rank reads of `length`."""
    base = length // d.stripe // d.dcp * d.stripe
    return max(1, base + min(length - base * d.dcp, d.stripe)) if length > 0 else 0


def shards(d: Deployed, node: Document) -> bool:
    return d.dcp > 1 and node["kind"] in ("gqa", "mla", "sparse_mla")


def read_tokens(d: Deployed, node: Document, decodes: Sequence[Request]) -> float:
    """Tokens a layer's own attention reads for the decodes."""
    total = 0.0
    for s, c in decodes:
        ctx = float(s + c)
        if node["kind"] == "sparse_mla":
            limit = node.get("index_topk") or node.get("window") or math.inf
            ratio = node.get("compress_ratio")
            ctx = min(ctx, limit) + (max(0.0, ctx - limit) / ratio if ratio else 0.0)
        total += sharded(d, max(1, math.floor(ctx + 0.5))) if shards(d, node) else ctx
    return total


# -- 2. composition ----------------------------------------------------------------------------------------------------

RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")


@dataclass
class Stage:
    """Seconds of one layer, the routed experts apart."""

    sm: float = 0.0
    hbm: float = 0.0
    nvlink: float = 0.0
    nic: float = 0.0
    routed_sm: float = 0.0
    routed_hbm: float = 0.0


@dataclass
class Priced:
    """Seconds by resource and with resources overlapped inside layers."""

    resource: dict[str, float]
    overlap: float

    @property
    def total(self) -> float:
        return sum(self.resource.values())


def price(d: Deployed, step: Step) -> Priced:
    """The step, composed of its layers, the head and the host."""
    batch = rows(d, step)
    out = dict.fromkeys(RESOURCES, 0.0)
    overlap = kernels = 0.0
    for kind, count in d.layers().items():
        stage, launched = layer(d, step, batch, d.nodes(kind))
        kernels += count * launched
        out["sm"] += count * (stage.sm + stage.routed_sm)
        out["hbm"] += count * (stage.hbm + stage.routed_hbm)
        out["nvlink"] += count * stage.nvlink
        out["nic"] += count * stage.nic
        overlap += count * (max(stage.sm, stage.hbm, stage.nvlink, stage.nic) + stage.routed_sm + stage.routed_hbm)
    top, launched = head(d, step, batch)
    kernels += launched
    out["sm"] += top.sm
    out["hbm"] += top.hbm
    out["host"] = host(d, step, batch, kernels)
    return Priced(out, overlap + max(top.sm, top.hbm) + out["host"])


def derate(d: Deployed, step: Step) -> float:
    sms = int(d.chip["SMCount"])
    return sms / step.sm_budget if 0 < step.sm_budget < sms else 1.0


def layer(d: Deployed, step: Step, batch: Rows, nodes: Sequence[Document]) -> tuple[Stage, float]:
    """One layer and the kernels it launches."""
    stage, kernels, m = Stage(), 0.0, batch.tokens
    slow = derate(d, step)
    for group in fused(d, nodes):
        kernels += len(group)
        if m:
            stage.sm += slow * gemm_seconds(d, group, m)
            stage.hbm += sum(weight_bytes(d, node) for node in group) / hbm_rate(d)
    primary = own_attention(nodes)
    for node in nodes:
        op = node["op"]
        if op == "GroupedGEMM":
            kernels += 4
            if m:
                experts(d, stage, node, m, slow)
        elif op == "Attention":
            kernels += 2
            if node is primary:
                attention(d, stage, node, batch, slow)
                context_parallel(d, stage, node, batch)
            else:
                scorer(d, stage, node, primary, batch)
        elif op == "RecurrentUpdate":
            kernels += 2
            rate = d.numbers.get(f"recurrent_decode_rate_{node['recurrent_kind']}")
            if m and rate:
                floor = d.numbers.get(f"recurrent_decode_floor_{node['recurrent_kind']}", 0.0)
                stage.sm += (floor + m / rate) * US
        elif op == "Elementwise" and node.get("role") not in SMALL_KERNELS:
            kernels += 1
            moved = node.get("bytes_per_token") or 2 * d.hidden * 2
            stage.hbm += m * moved / d.tp / hbm_rate(d)
        elif op in ("AllReduce", "All2All"):
            kernels += graph_collective(d, stage, node, nodes, m)
    return stage, kernels


def own_attention(nodes: Sequence[Document]) -> Document | None:
    found = [node for node in nodes if node["op"] == "Attention"]
    return next((node for node in found if not node.get("role")), found[-1] if found else None)


# -- 3. dense products -------------------------------------------------------------------------------------------------


def arithmetic(d: Deployed) -> tuple[float, str]:
    """(FLOP/s, coefficient suffix) of the served dtype's arithmetic."""
    fp8, fp4 = d.chip.get("TFlopsFP8"), d.chip.get("TFlopsNVFP4")
    if d.served in ("nvfp4", "mxfp4") and fp4:
        return fp4 * TERA, "nvfp4"
    if d.served in ("fp8", "int8", "nvfp4", "mxfp4") and fp8:
        return fp8 * TERA, "fp8"
    return d.chip["TFlopsPeak"] * TERA, "bf16"


def ramp(d: Deployed, m: float, n: float | None = None, k: float | None = None) -> float:
    """FLOP/s achieved with m rows, on an n x k product where the set carries the shape ramp."""
    peak, suffix = arithmetic(d)
    eff = d.numbers[f"gemm_eps_max_{suffix}"] * m / (m + d.numbers[f"gemm_m_half_{suffix}"])
    n_half, k_half = d.numbers.get(f"gemm_n_half_{suffix}"), d.numbers.get(f"gemm_k_half_{suffix}")
    if n and k and n_half and k_half:
        eff *= n / (n + n_half) * k / (k + k_half)
    return peak * eff


def column_parallel(d: Deployed, node: Document) -> bool:
    if node["n"] == node["k"]:
        return node["role"] in COLUMN_ROLES
    return bool(node["k"] == d.hidden)


def fused(d: Deployed, nodes: Sequence[Document]) -> list[list[Document]]:
    """Launches: consecutive column-parallel products of the same input are one."""
    groups: list[list[Document]] = []
    for before, node in zip([None, *nodes], nodes, strict=False):
        if node["op"] != "GEMM":
            continue
        beside = before is not None and before["op"] == "GEMM" and before["k"] == node["k"]
        if beside and column_parallel(d, before) and column_parallel(d, node):
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def gemm_seconds(d: Deployed, group: Sequence[Document], m: int) -> float:
    n, k = sum(node["n"] for node in group), group[0]["k"]
    shape = (n / d.tp, k) if column_parallel(d, group[0]) else (n, k / d.tp)
    return 2.0 * n * k / d.tp * m / ramp(d, m, *shape)


def weight_bytes(d: Deployed, node: Document) -> float:
    return node["n"] * node["k"] * WIDTH[node.get("weight_dtype") or d.served] / d.tp


def hbm_rate(d: Deployed) -> float:
    return float(d.chip["BwPeakTBs"]) * TERA * d.numbers["hbm_derate"]


def head(d: Deployed, step: Step, batch: Rows) -> tuple[Stage, float]:
    stage, m = Stage(), batch.tokens
    for node in d.graph["head"]:
        if node["op"] == "GEMM" and m:
            stage.sm += derate(d, step) * 2.0 * node["n"] * node["k"] / d.tp * m / ramp(d, m)
            stage.hbm += weight_bytes(d, node) / hbm_rate(d)
    return stage, float(len(d.graph["head"]))


# -- 4. experts --------------------------------------------------------------------------------------------------------


def experts(d: Deployed, stage: Stage, node: Document, m: int, slow: float) -> None:
    n, k = node["n"], node.get("latent_size") or node["k"]
    redundant = (d.engine.get("eplb") or {}).get("num_redundant_experts", 0)
    if d.expert_parallel:
        physical = node["experts"] + redundant
        local, cut, slices = math.ceil(physical / d.ep), 1, 1
        share = local / physical
    else:
        physical = local = node["experts"]
        cut, slices, share = d.tp * d.dp, d.dp, 1.0
    reach = m * (d.dp if d.expert_group > 1 and d.dp > 1 else 1)
    imbalance = d.numbers.get("moe_routing_imbalance_median", 1.0)
    flops = reach * node["top_k"] * share * 6.0 * n * k * imbalance / slices
    touched = local * (1.0 - ((physical - node["top_k"]) / physical) ** reach)
    width = WIDTH[node.get("weight_dtype") or d.served]
    stage.routed_sm += slow * flops / ramp(d, m)
    stage.routed_hbm += 3.0 * n * k * width / cut * touched / hbm_rate(d)
    if shared := node.get("shared_experts"):
        size = (node.get("shared_intermediate_size") or n) * node["k"] * shared
        stage.sm += slow * 6.0 * size / d.tp * m / ramp(d, m)
        stage.hbm += 3.0 * size * width / d.tp / hbm_rate(d)


# -- 5. attention ------------------------------------------------------------------------------------------------------


def cache_width(d: Deployed) -> float:
    dtype = str(d.engine.get("cache_dtype") or "auto")
    return 0.5625 if dtype.startswith("nvfp4") else 1.0 if dtype.startswith("fp8") else 2.0


def cache_bytes(d: Deployed, node: Document) -> float:
    """Bytes a token of one layer."""
    if node["kind"] in ("mla", "sparse_mla"):
        record = d.engine.get("cache_dtype") == "fp8_ds_mla"
        return 656.0 if record else node["d_h"] * cache_width(d)
    return 2.0 * max(1, node["n_kv"] // d.tp) * node["d_h"] * cache_width(d)


def decode_rate(d: Deployed, kind: str) -> tuple[float, float] | None:
    """(floor s, bytes/s) of an attention kind."""
    suffix = {"gqa": ""}.get(kind, f"_{kind}")
    rate, floor = d.numbers.get(f"attention_decode_rate{suffix}"), d.numbers.get(f"attention_decode_floor{suffix}")
    if rate is None:
        rate, floor = d.numbers.get("attention_decode_rate"), d.numbers.get("attention_decode_floor")
    elif floor is None:
        floor = d.numbers.get("attention_decode_floor")
    return None if rate is None else ((floor or 0.0) * US, rate / US)


def attention(d: Deployed, stage: Stage, node: Document, batch: Rows, slow: float) -> None:
    found, scale = decode_rate(d, node["kind"]), d.numbers.get("attention_prefill_work_scale")
    floor = d.numbers.get("attention_prefill_floor", 0.0) * US if scale else 0.0
    if batch.decodes:
        read = read_tokens(d, node, batch.decodes) * cache_bytes(d, node)
        stage.hbm += read / hbm_rate(d) if found is None else found[0] + read / found[1]
    if batch.prefills:
        pairs = sum(busiest_pairs(d, s, c, node.get("window", 0)) for s, c in batch.prefills)
        work = 4.0 * pairs * node["n_q"] * node["d_h"] / d.tp / (ramp(d, batch.tokens) * (scale or 1.0))
        stage.sm += floor + slow * work
    latent = node["kind"] in ("mla", "sparse_mla")
    # FlashAttention everywhere but on data-centre Blackwell (for the head sizes and caches of these tests).
    one_kernel = int(d.chip["ComputeCapability"]) < 10 and d.dcp == 1 and not latent
    if one_kernel and batch.decodes and batch.prefills and found and scale:
        if found[0] < floor:
            stage.hbm -= found[0]
        else:
            stage.sm -= floor


def scorer(d: Deployed, stage: Stage, node: Document, primary: Document, batch: Rows) -> None:
    """An index scorer reads its own keys; under prefill-context parallelism they are gathered too."""
    ratio = node["n_kv"] * node["d_h"] / (primary["n_kv"] * primary["d_h"])
    if batch.decodes:
        total = sum(min(s + c, node.get("window") or math.inf) for s, c in batch.decodes)
        total = total / (node.get("compress_ratio") or 1)
        read = sharded(d, math.floor(total + 0.5)) if shards(d, node) else total
        floor, rate = decode_rate(d, node["kind"]) or (0.0, hbm_rate(d))
        stage.hbm += floor + read * cache_bytes(d, primary) * ratio / rate
    if d.pcp > 1 and batch.prefills:
        gather_written(d, stage, node["n_kv"] * node["d_h"], batch)


# -- 8. collectives ----------------------------------------------------------------------------------------------------


def per_node(d: Deployed, group: str) -> tuple[int, int, bool]:
    """(width, ranks of the group on a node, whether it leaves the NVLink domain)."""
    beside_tp = d.pcp > 1 and d.dcp <= d.pcp
    width, stride = {
        "tp": (d.tp, 1),
        "expert": (d.expert_group, 1),
        "pcp": (d.pcp, d.tp),
        "dcp": (d.dcp, d.tp if beside_tp else 1),
    }[group]
    here = max(1, d.gpus_per_node // stride)
    rack = d.chip.get("GPUsPerRack", 0) if d.chip.get("IntraRackBwGBps", 0) >= d.chip["IntraNodeBwGBps"] else 0
    return width, min(width, here), width > here and width * stride > rack


def collective(d: Deployed, stage: Stage, op: str, group: str, size: float, count: float = 1.0) -> None:
    """Charge `count` collectives of `size` bytes each."""
    width, here, crosses = per_node(d, group)
    if width == 1:
        return
    span = 1.0
    if crosses:
        ratio = max(1.0, d.chip["IntraNodeBwGBps"] / d.network) if d.network else 1.0
        if op == "alltoall" and d.all2all in POINT_TO_POINT:
            hops = width - here
        else:
            hops = width // here - 1 if width % here == 0 else width - 1
        span = 1.0 + (ratio - 1.0) * hops / (width - 1)
    key = f"{op}_fp16_{width}rank_{d.chip_name.replace('-', '_')}"
    floor = d.numbers[f"collective_floor_{key}"] * US
    transition, peak = (d.numbers[f"collective_{name}_rate_{key}"] / US for name in ("transition", "peak"))
    seconds = count * max(floor + size * span / transition, size * span / peak)
    if crosses:
        stage.nic += seconds
    else:
        stage.nvlink += seconds


def graph_collective(d: Deployed, stage: Stage, node: Document, nodes: Sequence[Document], m: int) -> int:
    """A collective the graph lists, where its condition holds; returns the kernels it launches."""
    experts_of = [each for each in nodes if each["op"] == "GroupedGEMM"]
    if node["op"] == "All2All":
        if d.expert_group == 1:
            return 0
        width = (experts_of[0].get("latent_size") or d.hidden) * 2
        copies = experts_of[0]["top_k"] if d.expert_parallel and d.all2all in POINT_TO_POINT else 1
        if m:
            collective(d, stage, "alltoall", "expert", float(m * width * copies))
        return 2
    dropped = node["emit"] == "tensor_parallel_unless_sp_moe" and d.sequence_parallel_moe
    if d.tp == 1 or dropped:
        return 0
    if m:
        collective(d, stage, "all_reduce", "tp", float(m * d.hidden * 2))
    return 1


def context_parallel(d: Deployed, stage: Stage, node: Document, batch: Rows) -> None:
    """What decode- and prefill-context parallelism add to one layer (8.1, 8.2)."""
    latent = node["kind"] in ("mla", "sparse_mla")
    if shards(d, node):
        decode_context(d, stage, node, batch, latent)
        if latent:
            context_gathers(d, stage, node, batch)
    if d.pcp > 1 and batch.prefills:
        rope = node.get("qk_rope_head_dim", 0)
        gather_written(d, stage, node.get("kv_lora_rank") or node["d_h"] - rope, batch)
        gather_written(d, stage, rope, batch)


def decode_context(d: Deployed, stage: Stage, node: Document, batch: Rows, latent: bool) -> None:
    continues = any(c > 0 for _, c in batch.running)
    count = sum(s for s, _ in batch.decodes) if latent else batch.tokens * continues
    if not count:
        return
    heads, query = node["n_q"] / d.tp, node["d_h"]
    out = node.get("kv_lora_rank") or query if latent else query
    if d.pcp == 1:
        collective(d, stage, "all_gather", "dcp", count * heads * d.dcp * query * 2)
        heads *= d.dcp
        if d.engine.get("dcp_comm_backend") == "a2a":
            collective(d, stage, "alltoall", "dcp", count * heads * (out + 2) * 2)
            return
        collective(d, stage, "all_gather", "dcp", d.dcp * count * heads * 4)
        collective(d, stage, "reduce_scatter", "dcp", count * heads * out * 2)
        return
    if d.dcp == d.tp * d.pcp:
        heads *= d.tp
        collective(d, stage, "all_gather", "tp", count * heads * query * 2)
    collective(d, stage, "all_gather", "dcp", d.dcp * count * heads * 4)
    collective(d, stage, "all_reduce", "dcp", count * heads * out * 2)


def context_gathers(d: Deployed, stage: Stage, node: Document, batch: Rows) -> None:
    """Cached context of latent prefills, gathered in workspace chunks; a fresh prefill ends a run."""
    block = int(d.engine.get("block_size") or 16)
    longest = int(d.engine.get("max_model_len") or 0)
    chunk = min(max(8 * longest, 4 * int(d.engine["max_num_seqs"]) * block), 65536) if longest else 65536
    step = math.lcm(block, d.dcp * d.stripe)
    chunk = math.ceil(chunk / step) * step
    runs, at = [0], 0
    for _, computed in sorted(batch.prefills, key=lambda each: each[0]):
        if computed:
            runs[at] += computed
        else:
            runs.append(0)
            at += 1
    for total in runs:
        if total:
            gathers = math.ceil(total / chunk)
            collective(d, stage, "all_gather", "dcp", total / gathers * node["d_h"] * 2, gathers)


def gather_written(d: Deployed, stage: Stage, width: int, batch: Rows) -> None:
    if width:
        collective(d, stage, "all_gather", "pcp", float(d.pcp * batch.prefill_tokens * width * 2))


# -- 9. host -----------------------------------------------------------------------------------------------------------


def host(d: Deployed, step: Step, batch: Rows, kernels: float) -> float:
    replay, eager_layer, per_kernel = (
        d.numbers.get(name, 0.0) * US
        for name in ("host_replay_graph_per_step", "host_launch_eager_per_layer", "host_launch_per_kernel")
    )
    eager = eager_layer * sum(d.layers().values())
    splits = 0
    for kind, count in d.layers().items():
        nodes = d.nodes(kind)
        primary = own_attention(nodes)
        scored = primary is not None and primary["kind"] == "sparse_mla"
        scored = scored and sum(node["op"] == "Attention" for node in nodes) > 1
        splits += count * (2 if scored else 1)
    cost = {"NONE": eager, "FULL": replay, "PIECEWISE": replay * (splits + 1)}
    uniform = all(s == 1 + d.spec_tokens for s, _ in batch.running)
    mode = d.engine.get("cudagraph_mode") or "FULL_AND_PIECEWISE"
    if mode == "FULL_AND_PIECEWISE":
        mode = "FULL" if uniform else "PIECEWISE"
    elif mode == "FULL_DECODE_ONLY":
        mode = "FULL" if uniform else "NONE"
    scheduled = sum(s for s, _ in batch.running)
    if scheduled == 0:
        return cost[mode]
    limit = 1024 if int(d.chip["ComputeCapability"]) == 10 else 512
    widest = int(d.engine["max_num_seqs"]) * (1 + d.spec_tokens) * 2
    ceiling = min(widest, limit, int(d.engine["max_num_batched_tokens"]))
    return (eager if scheduled > ceiling else cost[mode]) + per_kernel * kernels
