"""The weight dtype the engine serves linear layers at."""

from __future__ import annotations

from steppe.engine.v0_31 import quantization as facts
from steppe.resolve.case import Case
from steppe.resolve.rules import refuse

_SIXTEEN_BIT = frozenset({"bf16", "fp16", "fp32"})


def served_dtype(case: Case) -> str:
    """Dtype that replaces the graph's global weight dtype, "" to serve weights as the graph stores them.

    A dtype stated on a node stands either way. A method that takes its widths from the checkpoint is priced where the
    graph states quantized weights.
    """
    name = case.engine.quantization
    if not name:
        return ""
    if name in facts.SERVED_DTYPE:
        return facts.SERVED_DTYPE[name]
    if name in facts.FROM_CHECKPOINT and case.shape.stored_dtypes - _SIXTEEN_BIT:
        return ""
    refuse("quantization_unknown", name=name, known=", ".join(sorted(facts.SERVED_DTYPE)))
