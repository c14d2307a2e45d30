"""Recurrent state of one layer on one rank: convolution tail and temporal state, in bytes.

Source: vllm/model_executor/layers/mamba/mamba_utils.py:160-330; both parts are divided by tp and each has its own
storage type. `s` is the number of drafted tokens a step verifies: the convolution keeps that many more columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from steppe.errors import DeploymentError
from steppe.memory.specs import dtype_bytes


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """Elements of one layer over all ranks, and the storage types.

    `conv_width` channels are kept for `conv_columns` tokens; `temporal` elements are the state itself (0: none).
    """

    conv_width: int
    conv_columns: int
    temporal: int
    conv_dtype: str
    temporal_dtype: str


def mamba2_state(
    *, inner: int, groups: int, heads: int, head_dim: int, state: int, conv: int, s: int, dtypes: tuple[str, str]
) -> RecurrentState:
    """Mamba-2: the convolution runs over the inner channels and both group projections."""
    return RecurrentState(inner + 2 * groups * state, conv - 1 + s, heads * head_dim * state, *dtypes)


def gdn_state(
    *, k_heads: int, v_heads: int, k_dim: int, v_dim: int, conv: int, s: int, dtypes: tuple[str, str]
) -> RecurrentState:
    """Gated delta net: query, key and value channels in the convolution, a matrix a value head."""
    return RecurrentState(2 * k_dim * k_heads + v_dim * v_heads, conv - 1 + s, v_heads * v_dim * k_dim, *dtypes)


def kda_state(*, heads: int, head_dim: int, conv: int, s: int, dtypes: tuple[str, str]) -> RecurrentState:
    """Kimi delta attention: three projections of one width, a square matrix a head."""
    return RecurrentState(3 * heads * head_dim, conv - 1 + s, heads * head_dim * head_dim, *dtypes)


def recurrent_rank_bytes(state: RecurrentState, tp: int) -> int:
    """Bytes of one layer's state on one of `tp` ranks, rounded up to a whole byte.

    COVERAGE LIMIT: every part is divided by tp. Where tp does not divide the groups of a Mamba-2 layer the engine
    widens them to one a rank (vllm/model_executor/layers/mamba/mamba_utils.py:206-208,267-277), so a rank keeps
    a little more convolution state than is charged: the mixer builds only with a single group then
    (vllm/model_executor/layers/mamba/mamba_mixer2.py:307-310), 2 x (tp - 1) / tp x state x columns elements a layer.
    """
    if tp < 1:
        raise DeploymentError("tp must be at least 1")
    conv = Fraction(state.conv_width, tp) * state.conv_columns * dtype_bytes(state.conv_dtype)
    temporal = Fraction(state.temporal, tp) * (dtype_bytes(state.temporal_dtype) if state.temporal else 0)
    total = conv + temporal
    return -(-total.numerator // total.denominator)
