"""What a rank holds whatever it serves: weights, activations, graphs, communication and engine buffers.

Bytes of one rank. Magnitudes come from the coefficient sets; a missing one is an error, never zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from steppe.documents import Node
from steppe.engine.releases import NEWEST, TRITON_SAMPLER, parse_release
from steppe.engine.v0_31.caches import context_chunk
from steppe.errors import CoefficientError
from steppe.memory.notebook import in_gib, table
from steppe.memory.weights import Weights, rank_weights
from steppe.resolve.resolved import Resolution

MIB: Final = 1 << 20
ACTIVATION_BYTES: Final = 2  # activations are 16-bit whatever the weights are
WIDEST_COUNTED: Final = 8  # activation buffers are counted for at most this many ranks

INDEX_LOGITS_BYTES: Final = 512 * MIB  # VLLM_SPARSE_INDEXER_MAX_LOGITS_MB (vllm/envs.py)
RADIX_WORKSPACE_BYTES: Final = MIB
INDEX_ROWS_PER_TOKEN: Final = 40  # vllm/v1/attention/backends/mla/indexer.py:791-801
LATENT_ROWS_PER_TOKEN: Final = 5  # vllm/v1/attention/backends/mla/flashmla_sparse.py:305-312
PREFILL_CHUNK: Final = 4  # requests gathered at once (vllm/models/deepseek_v41/attention.py:194-197)
RECORD_SCALE_BYTES: Final = 4
SAMPLER: Final = "sampler_bytes_per_logit_"
REQUEST_STATE: Final = "request_state_bytes_per_logit_"
UNSTATED_LENGTH: Final = 163_840  # tokens; DeepSeek-V3.2's own


class Lookup(Protocol):
    """Registry magnitudes in scope of a deployment (`steppe.resolve.coefficients.Coefficients`)."""

    def need(self, name: str, purpose: str) -> float:
        """The value of `name`; raises CoefficientError where it is missing or out of scope."""

    def names(self, prefix: str) -> list[str]:
        """Names in scope that start with `prefix`."""


@dataclass(frozen=True, slots=True)
class FixedBytes:
    """Bytes of one rank by part, and their sum."""

    weights: int
    activations: int
    cuda_graphs: int
    comm_buffers: int
    engine_buffers: int
    eplb_replicas: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return (
            self.weights
            + self.activations
            + self.cuda_graphs
            + self.comm_buffers
            + self.engine_buffers
            + self.eplb_replicas
        )

    def _repr_html_(self) -> str:
        parts = ("weights", "activations", "cuda_graphs", "comm_buffers", "engine_buffers", "eplb_replicas")
        rows = [(name.replace("_", " "), in_gib(getattr(self, name))) for name in parts if getattr(self, name)]
        return table(("held on each rank", "GiB"), [*rows, ("total", in_gib(self.total))])


def compute_fixed_bytes(r: Resolution, lookup: Lookup) -> FixedBytes:
    """Everything a rank holds before the first request.

    Redundant experts stand in `eplb_replicas` and not in `weights`.

    COVERAGE LIMIT: DeepSeek-V4.1-Flash with expert parallelism loads about 9 GiB a rank more than is charged, the same
    at tp 8 and at tp 4 (reported: 45.81 and 81.49 GiB loaded). What it is has not been located: the host-resident
    tables stay off the GPU by default (vllm/config/engram.py:34-120) and their staging buffers are far smaller
    (vllm/models/deepseek_v41/common/engram.py:926-966).
    """
    weights: Weights = rank_weights(r)
    return FixedBytes(
        weights=weights.total,
        activations=activation_scratch_bytes(r, lookup),
        cuda_graphs=graph_bytes(r, lookup),
        comm_buffers=communicator_bytes(r, lookup) + workspace_bytes(lookup),
        engine_buffers=engine_buffer_bytes(r) + request_state_bytes(r, lookup),
        eplb_replicas=weights.replicas,
    )


def pre_snapshot_bytes(r: Resolution, lookup: Lookup) -> int:
    """Bytes in place before the engine takes its memory snapshot, which its budget therefore does not pay for.

    KNOWN DIVERGENCE: the communicators and the whole engine workspace are counted here. In the engine only what exists
    when the distributed environment is up lies outside (vllm/v1/worker/gpu_worker.py:458-494,
    vllm/v1/worker/utils.py:539-558); library handles and workspaces that arise at the first forward are part of what
    the profile consumes and are taken from the KV cache (vllm/utils/mem_utils.py:286-321).
    """
    return communicator_bytes(r, lookup) + workspace_bytes(lookup)


# --- parts --------------------------------------------------------------------------------------------------------


def activation_scratch_bytes(r: Resolution, lookup: Lookup) -> int:
    """The transient peak of the profile: its layers or, once they are done, its sampler pass; at least the floor."""
    floor = lookup.need("activation_scratch_floor_bytes", "the activation peak")
    return round(max(layers_peak_bytes(r, lookup), sampler_peak_bytes(r, lookup), floor))


def layers_peak_bytes(r: Resolution, lookup: Lookup) -> float:
    """Buffers of a full token budget that are alive at the widest point of the decoder layers."""
    nodes = _nodes(r)
    kind = "moe" if any(node.op == "GroupedGEMM" for node in nodes) else "dense"
    plain = [node for node in nodes if node.op == "Attention" and node.kind not in ("mla", "sparse_mla")]
    own = [node for node in plain if not node.role]
    width = max(((node.n_q or 0) * (node.d_h or 0) for node in own), default=0) or r.graph.globals_.hidden_size
    prefix = f"activation_buffer_count_{kind}_"
    ranks = _snap(min(r.widths.tp, WIDEST_COUNTED), _declared(lookup, prefix))
    buffers = lookup.need(f"{prefix}{ranks}rank", "the activation peak")
    return buffers * r.settings.max_num_batched_tokens * width * ACTIVATION_BYTES


def sampler_peak_bytes(r: Resolution, lookup: Lookup) -> float:
    """What is alive while the profile samples one row a request, over the whole vocabulary.

    Bytes a logit come from the sets (`sampler_bytes_per_logit_<runner>`); a set without them counts no sampler pass.
    Hidden states of the whole token budget outlive the layers, the sampled rows stand beside them once as they are and,
    in the older runner, once at random (vllm/v1/worker/gpu_model_runner.py:6195-6260). Where tensor ranks gather, the
    new runner holds one more 16-bit copy: shards are put side by side after the gather
    (vllm/model_executor/layers/logits_processor.py:122-136).
    """
    entry = _sampler(r)
    if entry not in lookup.names(SAMPLER):
        return 0
    shape, settings = r.graph.globals_, r.settings
    rows = min(settings.max_num_seqs, settings.max_num_batched_tokens)
    bytes_per_logit = lookup.need(entry, "the sampler pass of the profile")
    if settings.runner == "v2" and r.widths.tp > 1:
        bytes_per_logit += ACTIVATION_BYTES
    copies = 2 if settings.runner == "v1" else 1
    hidden = ACTIVATION_BYTES * shape.hidden_size * (settings.max_num_batched_tokens + copies * rows)
    return bytes_per_logit * rows * shape.vocab_size + hidden


def request_state_bytes(r: Resolution, lookup: Lookup) -> int:
    """Penalty counts and masks the new runner keeps for every request slot, inside the budget
    (vllm/v1/worker/gpu/sample/penalties.py:39-46). A set without `request_state_bytes_per_logit_<runner>` counts none.
    """
    entry = f"{REQUEST_STATE}{r.settings.runner}"
    if entry not in lookup.names(REQUEST_STATE):
        return 0
    per_logit = lookup.need(entry, "the state of request slots")
    return round(per_logit * r.settings.max_num_seqs * r.graph.globals_.vocab_size)


def _sampler(r: Resolution) -> str:
    """The sampler of the deployment's runner: the older one sorted the vocabulary in its first releases."""
    sorts = (parse_release(r.engine_version) or NEWEST) < TRITON_SAMPLER
    return f"{SAMPLER}{r.settings.runner}" + ("_sorted" if sorts and r.settings.runner == "v1" else "")


def graph_bytes(r: Resolution, lookup: Lookup) -> int:
    """What the captured graphs of the deployment's mode take."""
    return round(lookup.need(f"cudagraph_capture_bytes_{r.settings.cudagraph_mode.lower()}", "CUDA graph capture"))


def communicator_bytes(r: Resolution, lookup: Lookup) -> int:
    """Collective communicators, where any group is wider than one rank."""
    w = r.widths
    if max(w.tp, w.dp, w.pcp, w.dcp, w.ep) <= 1:
        return 0
    prefix = "nccl_communicator_bytes_"
    ranks = _snap(w.tp, _declared(lookup, prefix))
    return round(lookup.need(f"{prefix}{ranks}rank", "the communication buffers"))


def workspace_bytes(lookup: Lookup) -> int:
    """The engine's own allocations beside the model: context, handles, library workspaces."""
    return round(lookup.need("engine_workspace_bytes", "the engine's workspace"))


def engine_buffer_bytes(r: Resolution) -> int:
    """Buffers whose size the engine's source fixes: sparse prefill gathers, index logits, latent context workspace.

    The gathers share one workspace, which is as large as the largest of them (vllm/v1/worker/workspace.py:178-204); the
    index scorer's logits stand beside it. Where max_model_len is not stated 163,840 tokens are assumed.

    KNOWN over-charge: DeepSeek-V4.1's prefill workspace and its index logits are added to the activation scratch, where
    the engine holds the larger of each pair: the profile frees the logits before the experts run, and the experts' own
    scratch lies in the same workspace (vllm/models/deepseek_v41/nvidia/flashmla.py:94-118,
    vllm/model_executor/layers/sparse_attn_indexer.py:364-388). Measured start-ups of that model are few; the activation
    magnitudes of the coefficient sets are assumed, so what removing it would gain cannot be told from them yet.
    """
    nodes = _nodes(r)
    attention = [node for node in nodes if node.op == "Attention"]
    gathers = [0]
    logits = 0
    for node in attention:
        if node.role.endswith("index_scores"):
            gathers.append(_index_gather(r, node))
            logits = INDEX_LOGITS_BYTES
        elif node.compress_ratio or _pooled_window(r, node):
            gathers.append(_pooled_gather(r, node))
        elif node.kind == "sparse_mla":
            gathers.append(_sparse_gather(r, node))
    return max(gathers) + logits + max((_context_workspace(r, node) for node in nodes), default=0)


def built_with_layers_bytes(r: Resolution) -> int:
    """Of the engine's buffers, what layers reserve as they are built: the log of loaded weights includes it
    (vllm/v1/attention/backends/mla/flashmla_sparse.py:728-783)."""
    sparse = [node for node in _nodes(r) if node.op == "Attention" and node.kind == "sparse_mla"]
    plain = [node for node in sparse if not node.role.endswith("index_scores") and not node.compress_ratio]
    return max((_sparse_gather(r, node) for node in plain), default=0)


# --- engine buffers -----------------------------------------------------------------------------------------------


def _length(r: Resolution) -> int:
    stated = r.settings.max_model_len
    if stated is None:
        r.ledger.assume("engine_buffers_max_model_len", UNSTATED_LENGTH, "sizes the gathers of sparse attention")
    return stated or UNSTATED_LENGTH


def _index_gather(r: Resolution, node: Node) -> int:
    """Keys of the contexts an index scorer reads at once, with their scales."""
    rows = INDEX_ROWS_PER_TOKEN * _length(r) // max(1, node.compress_ratio or 1)
    return rows * ((node.d_h or 0) + RECORD_SCALE_BYTES) + RADIX_WORKSPACE_BYTES


def _sparse_gather(r: Resolution, node: Node) -> int:
    """FlashMLA's queries and, for packed records, the contexts it widens to 16 bits
    (vllm/v1/attention/backends/mla/flashmla_sparse.py:728-796)."""
    if r.settings.sparse_mla_backend != "FLASHMLA_SPARSE":
        return 0
    tokens, heads = r.settings.max_num_batched_tokens, max(1, (node.n_q or 1) // r.widths.tp)
    padding = 128 if r.compute_capability[0] == 10 else 64
    padded = -(-heads // padding) * padding
    size, rank = node.d_h or 0, node.kv_lora_rank or 512
    if not r.settings.cache_dtype.endswith("_ds_mla"):
        return 2 * tokens * padded * size
    rows = LATENT_ROWS_PER_TOKEN * _length(r)
    both = r.widths.pcp > 1 and r.widths.dcp > 1
    gathered = rows // r.widths.dcp + rows if both else rows
    return 2 * (tokens * heads * size + gathered * size + tokens * padded * (size + rank) + tokens * heads * rank)


def _pooled_window(r: Resolution, node: Node) -> bool:
    """A window layer of a model whose other layers read pooled states: it gathers its window the same way."""
    return node.kind in ("mla", "sparse_mla") and any(cache.kind == "compressed" for cache in r.graph.caches)


def _pooled_gather(r: Resolution, node: Node) -> int:
    """Contexts of DeepSeek-V4 and V4.1 widened to 16 bits, four requests at once, and the chosen positions
    (vllm/models/deepseek_v4/nvidia/flashmla.py:105-132)."""
    tokens = r.settings.max_num_batched_tokens
    windows = [cache.window or 0 for cache in r.graph.caches if cache.kind == "window" and not cache.draft]
    window = node.window or max(windows, default=0)
    ratio = node.compress_ratio or 0
    pooled = -(-_length(r) // ratio) if ratio else 0
    chosen = -(-((node.index_topk or 0) + window) // 128) * 128
    return PREFILL_CHUNK * (pooled + window + tokens) * (node.d_h or 0) * 2 + tokens * chosen * 4 + tokens * 4


def _context_workspace(r: Resolution, node: Node) -> int:
    """The up-projected context of a dense latent prefill, simulated in the profile
    (vllm/model_executor/layers/attention/mla_attention.py:929-941)."""
    if node.role != "kv_b" or not any(n.op == "Attention" and n.kind == "mla" for n in _nodes(r)):
        return 0
    block = r.settings.block_size
    rows = context_chunk(r.settings.max_model_len, r.settings.max_num_seqs, block, block)
    return rows * (node.n or 0) * ACTIVATION_BYTES // r.widths.tp


# --- registry -----------------------------------------------------------------------------------------------------


def _nodes(r: Resolution) -> list[Node]:
    return [node for name in r.graph.stack.counts() for node in r.graph.layer_kind(name).nodes]


def _declared(lookup: Lookup, prefix: str) -> list[int]:
    """Widths a magnitude is declared for, ascending. Raises CoefficientError when there are none."""
    widths = sorted(
        int(found.group(1)) for name in lookup.names(prefix) if (found := re.fullmatch(rf"{prefix}(\d+)rank", name))
    )
    if not widths:
        raise CoefficientError(
            f"coefficient {prefix}<width>rank is missing for this deployment; list a coefficient set that carries it"
        )
    return widths


def _snap(width: int, declared: list[int]) -> int:
    """The smallest declared width that is at least `width`, else the largest."""
    return next((each for each in declared if each >= width), declared[-1])
