"""The engine's rules written out once more, slowly and plainly, to check the library against.

Pages and groups follow vllm/v1/kv_cache_interface.py and vllm/v1/core/kv_cache_utils.py; `Table` plays the block
managers of vllm/v1/core/single_type_kv_cache_manager.py on a list of block ids instead of using a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, field


def up(a: int, b: int) -> int:
    return (a + b - 1) // b


@dataclass
class Layer:
    """One layer of a random stack. `what`: full, window, chunked or state."""

    what: str
    block: int
    page: int
    span: int = 0
    heads: int = 1
    dim: int = 0
    width: int = 2
    spare: int = 0
    mode: str = "none"

    def key(self) -> tuple[object, ...]:
        return (self.what, self.block, self.page, self.span, self.heads, self.dim, self.width, self.spare, self.mode)


def startup(layer: Layer, block: int, max_len: int, flight: int, extra: int, dcp: int) -> int:
    if layer.what == "full":
        return up(up(max_len, dcp), block)
    if layer.what == "window":
        return up(min(layer.span - 1 + extra + flight, max_len), block) + 1
    if layer.what == "chunked":
        return up(min(layer.span + flight, max_len), block)
    if layer.mode == "all":
        return up(max_len, block) + layer.spare
    return (2 if layer.mode == "align" else 1) + layer.spare


def admission(layer: Layer, block: int, tokens: int, max_len: int, flight: int, extra: int, dcp: int) -> int:
    if layer.what == "full":
        return up(tokens, block * dcp)
    if layer.what in ("window", "chunked"):
        return min(up(tokens, block), startup(layer, block, max_len, flight, extra, 1))
    if layer.mode == "none":
        return 1 + layer.spare
    needed = up(tokens, block) + layer.spare
    return needed if layer.mode == "all" else min(needed, 1 + layer.spare)


def groups(layers: list[Layer]) -> list[tuple[list[int], int, int]]:
    """(layers, block, page) of each group of a stack whose pages are not all of one type."""
    if len({layer.key() for layer in layers}) == 1:
        return [(list(range(len(layers))), layers[0].block, layers[0].page)]
    largest = max(layer.page for layer in layers)
    buckets: dict[tuple[object, ...], list[int]] = {}
    blocks: dict[tuple[object, ...], int] = {}
    for i, layer in enumerate(layers):
        grows = layer.what != "state" and largest % layer.page == 0
        block = layer.block * (largest // layer.page) if grows else layer.block
        padded = not grows and layer.page != largest
        key = (layer.what, layer.span, layer.spare, layer.mode, layer.heads, layer.dim, layer.width, block, padded)
        buckets.setdefault(key, []).append(i)
        blocks[key] = block
    fewest = min(map(len, buckets.values()))
    most = max(map(len, buckets.values()))
    width = most if most < fewest * 1.5 else fewest
    out = []
    for key, members in buckets.items():
        count = up(len(members), width)
        out.extend((members[i::count], blocks[key], largest) for i in range(count))
    return out


@dataclass
class Table:
    """The block row of one request in one group: ids, or None where a block was given back."""

    layer: Layer
    block: int
    max_len: int
    extra: int
    lookahead: int
    row: list[object | None] = field(default_factory=list)
    last_state: int | None = None
    started: bool = False

    def step(self, computed: int, scheduled: int, in_flight: int) -> int:
        """Give back what fell out, take what the step needs; the ids held."""
        processed = max(0, computed - in_flight)
        self._give_back(processed)
        if self.layer.what == "state" and self.layer.mode == "align":
            self._take_state(computed + scheduled)
        else:
            slots = min(computed + scheduled + self.lookahead, self.max_len)
            spare = self.layer.spare if self.layer.what == "state" else 0
            if self.layer.mode == "none" and self.layer.what == "state":
                wanted = 1 + spare
            else:
                wanted = up(slots, self.block) + spare
            self.row += [object() for _ in range(wanted - len(self.row))]
        return sum(entry is not None for entry in self.row)

    def _give_back(self, processed: int) -> None:
        layer = self.layer
        if layer.what == "window":
            skipped = max(0, processed - layer.span + 1 - self.extra)
        elif layer.what == "chunked":
            skipped = processed // layer.span * layer.span
        elif layer.what == "state" and layer.mode != "none":
            skipped = processed - 1
        else:
            skipped = 0
        for i in range(min(max(0, skipped) // self.block, len(self.row))):
            self.row[i] = None
        if self.last_state is not None and self.last_state < up(processed, self.block) - 1:
            self.row[self.last_state] = None

    def _take_state(self, end: int) -> None:
        spare, required = self.layer.spare, up(end, self.block) + self.layer.spare
        before = len(self.row)
        if required <= before:
            self.started = True
            return
        if self.started:
            self.last_state = before - 1 - spare
        skipped = required - spare - 1
        self.row += [None] * max(0, skipped - before)
        if self.started:
            for i in range(before - spare, before):
                if i >= skipped:
                    break
                self.row.append(self.row[i])
                self.row[i] = None
        self.row += [object() for _ in range(required - len(self.row))]
        self.started = True
