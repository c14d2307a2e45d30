"""What changed between releases of vLLM, as far as memory is concerned.

Rules stay those of 0.31.0 everywhere else; these are the few facts that make an older start-up hold another amount.
"""

from __future__ import annotations

import re
from typing import Final

Release = tuple[int, int, int]

NEWEST: Final[Release] = (9999, 0, 0)
"""A build of the main branch, which carries no release number of its own (0.1.dev...)."""

TRITON_SAMPLER: Final[Release] = (0, 17, 0)
"""From here the older runner's top-k and top-p pass no longer sorts the vocabulary (vllm pull request 33538)."""
GRAPHS_IN_BUDGET: Final[Release] = (0, 21, 0)
"""From here graph memory is estimated and taken from the cache (vllm/v1/worker/gpu_worker.py:639-677)."""
TOKENS_AT_LENGTH: Final[Release] = (0, 21, 0)
"""From here the log's token count is concurrency x max_model_len; before, blocks / groups x block tokens."""
DENSE_NEW_RUNNER: Final[Release] = (0, 25, 0)
"""From here dense models run on the new runner (vllm pull request 44443)."""
SETTLED_WINDOWS: Final[Release] = (0, 26, 0)
"""From here a window keeps the tokens of every batch in flight (vllm pull request 47728); before, of one batch."""
HYBRID_PREFIX_CACHING: Final[Release] = (0, 28, 0)
"""From here hybrids cache prefixes unless told otherwise (vllm pull request 50991)."""
NEW_RUNNER: Final[Release] = (0, 29, 0)
"""From here every model runs on the new runner where it can (vllm pull request 53183)."""


def parse_release(text: str) -> Release | None:
    """Release of a version as written (`0.28.0`, `v0.23.1rc1.dev190+gab66`), None where it is not one."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(\.?dev\d*)?", text.strip())
    if not found:
        return None
    major, minor = int(found[1]), int(found[2])
    if (major, minor) == (0, 1) and ".dev" in text:
        return NEWEST
    return major, minor, int(found[3] or 0)


def default_runner(release: Release, *, plain: bool) -> str:
    """v1 or v2: what serves a model where nothing else decides. `plain`: neither experts nor recurrent layers."""
    if release >= NEW_RUNNER or (plain and release >= DENSE_NEW_RUNNER):
        return "v2"
    return "v1"
