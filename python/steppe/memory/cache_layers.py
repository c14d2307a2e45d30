"""From a model graph and resolved settings to the cache of every layer, in the order the engine registers them.

A graph that states its caches is sized from those and from nothing else. Any other is sized as one cache per attention
node that holds keys, windows bounded by their window, index scorers by their own heads, and one state a recurrent node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from steppe.documents import ModelGraph, Node
from steppe.documents.graph import CacheSpec as StatedCache
from steppe.documents.graph import Stack
from steppe.engine.v0_31.speculation import PARALLEL_BLOCK_METHODS
from steppe.errors import DeploymentError
from steppe.memory import states
from steppe.memory.blocks import HybridBlocks, KernelBlocks, hybrid_blocks, window_block
from steppe.memory.packing import DS_MLA_BYTES, SCALED_PER_TOKEN_HEAD, TURBOQUANT_BITS, index_key_bytes, packed
from steppe.memory.specs import FULL_FAMILY, MLA_FAMILY, CacheSpec
from steppe.resolve.resolved import Resolution

UNSTATED_LENGTH: Final = 1 << 20
"""Tokens a request may have where no max_model_len is stated."""

STORAGE: Final = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "auto": "bfloat16",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
}
"""Storage types by the names documents use; every other cache dtype is stored as single bytes
(vllm/utils/torch_utils.py:33-55)."""

SCAN_CHUNK: Final = {"mamba2": 128}
DEFAULT_SCAN_CHUNK: Final = 2048
"""Tokens of a scan chunk, which only mode all reads (vllm/config/model.py:1742-1755)."""

KERNELS: Final = {
    "FLASHINFER": KernelBlocks((16, 32, 64)),
    "FLASHMLA": KernelBlocks((64,)),
    "FLASHINFER_MLA": KernelBlocks((32, 64)),
    "CUTLASS_MLA": KernelBlocks((128,)),
}
MULTIPLES_OF_16: Final = KernelBlocks(multiples=(16,))
"""Kernel blocks of the attention backends; those not named take any multiple of 16 tokens
(vllm/v1/attention/backends/flash_attn.py:297-375, flashinfer.py:429-449)."""


Placed = tuple[int, CacheSpec]
"""A cache and the decoder layer that holds it."""


@dataclass(frozen=True, slots=True)
class CacheLayers:
    """Every cache of a rank in registration order, and how they are laid out."""

    specs: tuple[CacheSpec, ...]
    block_size: int  # of full-attention layers, after the alignment of hybrids
    block_outer: bool  # layers of different page sizes are packed into one block
    dcp: int  # ranks that share token positions
    layer_of: tuple[int, ...] = ()  # decoder layer of each cache; a draft's stand behind the last one


def cache_layers(r: Resolution) -> CacheLayers:
    """Lay out the caches of `r`'s pool."""
    blocks = _blocks(r)
    placed = [*_target_caches(r, blocks), *_own_draft_caches(r, blocks)]
    specs = tuple(spec for _, spec in placed)
    block_outer = any(cache.kind in ("compressed", "ring") for cache in r.graph.caches)
    return CacheLayers(specs, blocks.block_size, block_outer, shards(r, specs), tuple(layer for layer, _ in placed))


def _target_caches(r: Resolution, blocks: HybridBlocks) -> Iterator[Placed]:
    return _stated(r, blocks) if r.graph.caches else _from_nodes(r, blocks)


def _own_draft_caches(r: Resolution, blocks: HybridBlocks) -> Iterator[Placed]:
    """Caches of a drafter with a graph of its own: more layers of the same pool, on the last stage
    (vllm/v1/worker/gpu/attn_utils.py:132-147)."""
    if r.draft is None:
        return
    last = r.graph.stack.layers
    for _, spec in _target_caches(r.draft, blocks):
        yield last, _as_draft(r, spec)


def shards(r: Resolution, specs: tuple[CacheSpec, ...]) -> int:
    """Decode-context ranks the token positions are dealt to: dcp when every layer that holds keys is one it shards."""
    holding = [spec for spec in specs if spec.kind != "mamba" and spec.dcp_sharded]
    return r.widths.dcp if holding and all(spec.kind in FULL_FAMILY for spec in holding) else 1


def kv_bytes_per_token(r: Resolution, node: Node) -> Fraction:
    """Bytes one attention layer keeps of one token on a rank: its page over its block.

    COVERAGE LIMIT: caches with a scale for every token and head, and the TurboQuant slots, are refused: only one
    backend reads each and no law prices it (vllm/v1/attention/backends/triton_attn.py:276-304,
    turboquant_attn.py:140-187). Pages that a layout pads and caches that pool several tokens into one state are sized
    only where the graph states its caches; otherwise a compressed layer is one cache of full length
    (vllm/models/deepseek_v4/attention.py:856-920).
    """
    return attention_spec(r, node, r.settings.block_size).bytes_per_token


def attention_spec(r: Resolution, node: Node, block: int) -> CacheSpec:
    """The cache of one attention node with blocks of `block` tokens."""
    dtype = r.settings.cache_dtype
    if dtype in SCALED_PER_TOKEN_HEAD or dtype in TURBOQUANT_BITS:
        raise DeploymentError(f"cache_dtype {dtype}: caches with scales in their slots are not sized; use fp8 or auto")
    if node.role.endswith("index_scores"):
        return CacheSpec("mla", block, state_bytes=index_key_bytes(node.d_h or 0), dtype="uint8", role="indexer")
    storage, quant = _storage(dtype)
    if node.kind in ("mla", "sparse_mla"):
        return CacheSpec(
            "mla",
            block,
            head_dim=node.d_h or 0,
            dtype=storage,
            state_bytes=DS_MLA_BYTES.get(dtype),
            kv_quant=quant,
            cache_dtype=dtype if quant else None,
        )
    d_h, heads = node.d_h or 0, max(1, (node.n_kv or 1) // r.widths.tp)
    spec = _plain(r, "window" if node.kind == "swa" else "full", block, heads, d_h, d_h)
    return replace(spec, window=node.window) if node.kind == "swa" and node.window else spec


def state_spec(r: Resolution, node: Node, blocks: HybridBlocks) -> CacheSpec:
    """The recurrent state of one node, its page padded to the attention page."""
    mode = r.settings.mamba_cache_mode or "none"
    size = states.recurrent_rank_bytes(recurrent_state(r, node), r.widths.tp)
    return CacheSpec(
        "mamba",
        blocks.state_block or longest(r),
        shapes=((size,),),
        dtypes=("uint8",),
        mode=mode,
        speculative_blocks=r.settings.spec_tokens,
        page_bytes_padded=blocks.state_page_padded,
    )


def recurrent_state(r: Resolution, node: Node) -> states.RecurrentState:
    """Elements and storage types of a recurrent node's state, over all ranks."""
    s, conv = r.settings.spec_tokens, node.conv_kernel or 4
    heads, dim = node.n_heads or 0, node.state_size or 0
    dtypes = _state_dtypes(r, node)
    if node.recurrent_kind == "mamba2":
        inner = node.intermediate_size or 0
        return states.mamba2_state(
            inner=inner, groups=node.n_groups or 1, heads=heads, head_dim=inner // heads, state=dim, conv=conv, s=s,
            dtypes=dtypes,
        )  # fmt: skip
    if node.recurrent_kind == "gdn":
        return states.gdn_state(
            k_heads=node.n_groups or heads, v_heads=heads, k_dim=dim, v_dim=node.d_h or dim, conv=conv, s=s,
            dtypes=dtypes,
        )  # fmt: skip
    return states.kda_state(heads=heads, head_dim=dim, conv=conv, s=s, dtypes=dtypes)


def longest(r: Resolution) -> int:
    """The longest request, tokens: max_model_len where it is stated."""
    return r.settings.max_model_len or UNSTATED_LENGTH


def uses_graph_draft(r: Resolution) -> bool:
    """Whether the deployment drafts with the part its own checkpoint carries."""
    method = r.settings.spec_method
    speculator = r.graph.speculator
    if speculator is None or not method or r.settings.spec_draft:
        return False
    return method == speculator.method or (method.endswith("mtp") and speculator.method.endswith("mtp"))


# --- blocks -------------------------------------------------------------------------------------------------------


def _blocks(r: Resolution) -> HybridBlocks:
    """The block of the full-attention layers, raised for the largest recurrent page where there is one.

    Index scorers take part in neither: the engine reads the first attention layer
    (vllm/platforms/interface.py:834-1018).
    """
    block = r.settings.block_size
    nodes = [node for name in r.graph.stack.counts() for node in r.graph.layer_kind(name).nodes]
    recurrent = [node for node in nodes if node.op == "RecurrentUpdate"]
    attention = [node for node in nodes if node.op == "Attention" and not node.role.endswith("index_scores")]
    if not recurrent:
        return HybridBlocks(block, None, None)
    page = max(states.recurrent_rank_bytes(recurrent_state(r, node), r.widths.tp) for node in recurrent)
    if not attention:
        return HybridBlocks(block, block if r.settings.mamba_cache_mode in ("align", "all") else None, None)
    first = attention[0]
    latent = first.kind in ("mla", "sparse_mla")
    one = attention_spec(r, first, 1)
    if latent:  # the engine leaves packed records out here
        one = replace(one, state_bytes=None)
    kind = recurrent[0].recurrent_kind
    return hybrid_blocks(
        block_size=block,
        state_page=page,
        attention_bytes=one.page_bytes,
        kernel=KERNELS.get(r.settings.attention_backend, MULTIPLES_OF_16),
        latent=latent,
        mode=r.settings.mamba_cache_mode or "none",
        chunk=SCAN_CHUNK.get(kind, DEFAULT_SCAN_CHUNK),
    )


def _window_spec(r: Resolution, spec: CacheSpec, blocks: HybridBlocks) -> CacheSpec:
    """A window layer's own block: the largest its kernel runs within the primary page."""
    kernel = KERNELS.get(r.settings.attention_backend, MULTIPLES_OF_16)
    per_token = spec.with_block(1).page_bytes
    own = window_block(
        bytes_per_token=per_token, page_budget=per_token * blocks.block_size, kernel=kernel, fallback=blocks.block_size
    )
    return spec.with_block(own)


# --- from the nodes -----------------------------------------------------------------------------------------------


def _from_nodes(r: Resolution, blocks: HybridBlocks) -> Iterator[Placed]:
    made: dict[str, tuple[CacheSpec, ...]] = {}
    for layer, name in enumerate(layer_order(r.graph.stack)):
        if name not in made:
            made[name] = tuple(_of_kind(r, name, blocks))
        yield from ((layer, spec) for spec in made[name])
    speculator = r.graph.speculator
    if speculator is not None and uses_graph_draft(r):
        for name in layer_order(speculator.stack):
            for spec in _of_kind(r, name, blocks):
                yield r.graph.stack.layers, _as_draft(r, spec)


def _as_draft(r: Resolution, spec: CacheSpec) -> CacheSpec:
    """A parallel-block drafter without latent layers runs without decode context parallelism: under a sharded target
    its cache stays whole (vllm/v1/worker/gpu/model_runner.py:566-576, spec_decode/dflash/speculator.py:43-51)."""
    whole = r.widths.dcp > 1 and r.settings.spec_method in PARALLEL_BLOCK_METHODS and spec.kind not in MLA_FAMILY
    return replace(spec, dcp_sharded=False) if whole and spec.kind != "mamba" else spec


def _of_kind(r: Resolution, name: str, blocks: HybridBlocks) -> Iterator[CacheSpec]:
    for node in r.graph.layer_kind(name).nodes:
        if node.op == "Attention":
            spec = attention_spec(r, node, blocks.block_size)
            yield _window_spec(r, spec, blocks) if spec.kind == "window" else spec
        elif node.op == "RecurrentUpdate":
            yield state_spec(r, node, blocks)


def layer_order(stack: Stack) -> list[str]:
    """Layer kinds of a stack, layer by layer."""
    return [*stack.prologue, *(list(stack.pattern) * stack.repeat), *stack.epilogue]


# --- as stated ----------------------------------------------------------------------------------------------------


def _stated(r: Resolution, blocks: HybridBlocks) -> Iterator[Placed]:
    """Stated caches, layer by layer for those that name layer kinds, then those stated by a number of layers.

    Recurrent nodes of a graph that states no recurrent cache still hold their state: a state is not a cache of keys.
    """
    graph = r.graph
    by_kind: dict[str, list[StatedCache]] = {}
    for cache in graph.caches:
        for name in cache.layer_kinds:
            by_kind.setdefault(name, []).append(cache)
    keep_states = not any(cache.kind == "recurrent" for cache in graph.caches)
    make = _maker(r, blocks)
    yield from _stated_stack(r, graph, graph.stack, by_kind, make, keep_states, blocks, draft=False)
    for cache in graph.caches:
        if cache.layers and not cache.draft:
            yield from [(0, make(cache, False))] * cache.layers
    if graph.speculator is not None and uses_graph_draft(r):
        yield from _stated_stack(r, graph, graph.speculator.stack, by_kind, make, keep_states, blocks, draft=True)
        for cache in graph.caches:
            if cache.layers and cache.draft:
                yield from [(graph.stack.layers, make(cache, True))] * cache.layers


def _stated_stack(
    r: Resolution,
    graph: ModelGraph,
    stack: Stack,
    by_kind: dict[str, list[StatedCache]],
    make: Callable[[StatedCache, bool], CacheSpec],
    keep_states: bool,
    blocks: HybridBlocks,
    *,
    draft: bool,
) -> Iterator[Placed]:
    for i, name in enumerate(layer_order(stack)):
        layer = graph.stack.layers if draft else i
        for cache in by_kind.get(name, ()):
            yield layer, make(cache, draft)
        if keep_states:
            for node in graph.layer_kind(name).nodes:
                if node.op == "RecurrentUpdate":
                    yield layer, state_spec(r, node, blocks)


def _maker(r: Resolution, blocks: HybridBlocks) -> Callable[[StatedCache, bool], CacheSpec]:
    """Stated cache -> spec, each made once."""
    made: dict[tuple[str, bool], CacheSpec] = {}

    def make(cache: StatedCache, draft: bool) -> CacheSpec:
        key = (cache.id, draft)
        if key not in made:
            spec = stated_spec(r, cache, blocks)
            if cache.dcp_sharded is False and spec.kind != "mamba":
                spec = replace(spec, dcp_sharded=False)
            made[key] = _as_draft(r, spec) if draft or cache.draft else spec
        return made[key]

    return make


def stated_spec(r: Resolution, cache: StatedCache, blocks: HybridBlocks) -> CacheSpec:
    """One stated cache on a rank: its heads divided by tp, its records as stated."""
    block = cache.block_size or blocks.block_size
    per_state = _per_state(cache.tokens_per_state)
    if cache.kind == "recurrent":
        return _stated_state(r, cache, blocks)
    storage, quant = _storage(cache.dtype or r.settings.cache_dtype)
    heads = max(1, (cache.heads or 1) // r.widths.tp)
    if cache.kind == "ring":
        return CacheSpec(
            "ring", block, heads=heads, head_dim=cache.head_dim or 0, dtype=storage, state_bytes=cache.state_bytes
        )
    one_vector = cache.kind in ("latent", "index", "compressed") or _one_vector(cache)
    if one_vector:
        kind = "window_mla" if cache.kind == "window" else "mla"
        return CacheSpec(
            kind,
            block,
            head_dim=cache.head_dim or 0,
            dtype=storage,
            state_bytes=cache.state_bytes or (None if cache.dtype else DS_MLA_BYTES.get(r.settings.cache_dtype)),
            tokens_per_state=per_state,
            alignment=cache.alignment,
            window=cache.window if kind == "window_mla" else None,
            role="indexer" if cache.kind == "index" else "sparse",
            kv_quant="" if cache.kind == "index" else quant,
        )
    spec = _plain(r, cache.kind, block, heads, cache.head_dim or 0, _value_dim(cache), cache.dtype)
    spec = replace(
        spec,
        window=cache.window if cache.kind == "window" else None,
        chunk=cache.window if cache.kind == "chunked" else None,
        state_bytes=cache.state_bytes or spec.state_bytes,
        head_slots=None if cache.state_bytes else spec.head_slots,
        tokens_per_state=per_state,
    )
    return _window_spec(r, spec, blocks) if cache.kind == "window" and not cache.block_size else spec


def _one_vector(cache: StatedCache) -> bool:
    """A window over latent records: it has no value part, or an alignment, which only latent pages have."""
    return cache.kind == "window" and (cache.alignment is not None or cache.head_dim_v == 0)


def _value_dim(cache: StatedCache) -> int:
    return (cache.head_dim or 0) if cache.head_dim_v is None else cache.head_dim_v


def _per_state(stated: float) -> Fraction | int:
    exact = Fraction(stated).limit_denominator(4096)
    return int(exact) if exact.denominator == 1 else exact


def _stated_state(r: Resolution, cache: StatedCache, blocks: HybridBlocks) -> CacheSpec:
    storage, _ = _storage(cache.dtype or "auto")
    width = {"bfloat16": 2, "float16": 2, "float32": 4}.get(storage, 1)
    whole = cache.state_bytes or (cache.heads or 1) * (cache.head_dim or 1) * (cache.head_dim_v or 1) * width
    return CacheSpec(
        "mamba",
        cache.block_size or blocks.state_block or longest(r),
        shapes=((-(-whole // r.widths.tp),),),
        dtypes=("uint8",),
        mode=r.settings.mamba_cache_mode or "none",
        speculative_blocks=r.settings.spec_tokens,
        page_bytes_padded=blocks.state_page_padded,
    )


# --- storage ------------------------------------------------------------------------------------------------------


def _plain(
    r: Resolution, kind: str, block: int, heads: int, head_dim: int, head_dim_v: int, own_dtype: str = ""
) -> CacheSpec:
    """A cache of keys and values, packed where the dtype packs."""
    dtype = own_dtype or r.settings.cache_dtype
    storage, quant = _storage(dtype)
    spec = CacheSpec(
        "full", block, heads=heads, head_dim=head_dim, head_dim_v=head_dim_v, dtype=storage, kv_quant=quant
    )
    if dtype.startswith("nvfp4"):
        cell = packed(dtype, heads, head_dim, head_dim_v, 1)
        spec = replace(spec, head_slots=cell.head_slots, state_bytes=cell.state_bytes)
    if kind == "window":
        return replace(spec, kind="window", window=1)
    if kind == "chunked":
        return replace(spec, kind="chunked", chunk=1)
    return spec


def _storage(dtype: str) -> tuple[str, str]:
    """(storage type, quantization mode) of a cache dtype; "" for none."""
    if dtype in STORAGE:
        return STORAGE[dtype], ""
    return "uint8", dtype


def _state_dtypes(r: Resolution, node: Node) -> tuple[str, str]:
    """(convolution, temporal) storage types: stated, else the checkpoint's, else fp32 for KDA and the convolution's
    type for the rest (vllm/model_executor/layers/mamba/mamba_utils.py:53-158)."""
    conv = STORAGE[r.settings.mamba_cache_dtype or "auto"]
    stated = r.settings.mamba_ssm_cache_dtype or "auto"
    if stated != "auto":
        return conv, STORAGE[stated]
    if node.state_dtype:
        return conv, STORAGE[node.state_dtype]
    return conv, "float32" if node.recurrent_kind == "kda" else conv
