"""Steps written as text: `64@2048` is 64 decodes at 2,048 computed tokens each, `p2048@0` one prefill chunk of 2,048
tokens on none cached, and `64@2048+p2048` both in one step."""

from __future__ import annotations

import re

from steppe._core import Batch
from steppe.errors import Error

MOST_REQUESTS = 1 << 20  # far more than an engine runs at once, far fewer than exhaust memory
MOST_TEXT = 10_000
_PART = re.compile(r"(?:(?P<count>\d+)x)?(?P<prefill>p)?(?P<tokens>\d+)(?:@(?P<computed>\d+))?")


def parse_step(text: str) -> Batch:
    """The batch a step describes: parts joined by `+`.

    Each part is `N@CTX` (N decodes) or `[Nx]pTOKENS[@CACHED]` (N prefill chunks). Raises `steppe.Error`.
    """
    scheduled: list[int] = []
    computed: list[int] = []
    if len(text) > MOST_TEXT:
        raise Error(f"a step of {len(text)} characters: write it in at most {MOST_TEXT}")
    for part in text.split("+"):
        found = _PART.fullmatch(part.strip())
        if not found or (not found["prefill"] and (found["computed"] is None or found["count"])):
            raise Error(f"step {text!r}: write decodes as N@CONTEXT and prefills as pTOKENS[@CACHED], joined by +")
        tokens, past = int(found["tokens"]), int(found["computed"] or 0)
        count = int(found["count"] or 1) if found["prefill"] else tokens
        if tokens == 0 or count == 0:
            raise Error(f"step {text!r}: {part.strip()} runs no token; a step needs at least one")
        if len(computed) + count > MOST_REQUESTS:
            raise Error(f"step {text!r}: at most {MOST_REQUESTS:,} requests a step")
        scheduled += [tokens if found["prefill"] else 1] * count
        computed += [past] * count
    return Batch(scheduled, computed)
