"""What a notebook shows of sizes: tables in GiB."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steppe.memory.capacity import KvCapacity
    from steppe.memory.fixed import FixedBytes

GIB = float(1 << 30)


def fixed_html(fixed: FixedBytes) -> str:
    """What a rank holds whatever it serves, part by part."""
    parts = ("weights", "activations", "cuda_graphs", "comm_buffers", "engine_buffers", "eplb_replicas")
    rows = [(name.replace("_", " "), f"{getattr(fixed, name) / GIB:,.2f}") for name in parts if getattr(fixed, name)]
    return _table(("held on each rank", "GiB"), [*rows, ("total", f"{fixed.total / GIB:,.2f}")])


def capacity_html(capacity: KvCapacity) -> str:
    """What the KV cache of a rank holds."""
    rows = (
        ("GiB for the KV cache", f"{capacity.kv_bytes / GIB:,.2f}"),
        ("blocks", f"{capacity.num_blocks:,} of {capacity.bytes_per_block:,} bytes"),
        ("tokens", f"{capacity.tokens:,}"),
        (f"requests of {capacity.max_model_len:,} tokens", f"{capacity.max_concurrency:,.2f}"),
    )
    return _table(("KV cache of each rank", ""), rows)


def _table(headings: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr><td>{escape(a)}</td><td style='text-align:right'>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
