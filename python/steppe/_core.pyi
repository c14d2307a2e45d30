"""Types of the compiled core."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from steppe.breakdown import TermCost

__version__: str
FEATURES: dict[str, int]
LAWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]

class Batch:
    def __init__(
        self,
        scheduled: Tokens,
        computed: Tokens,
        *,
        decode_threshold: int = 1,
        sm_budget: int = 0,
        pad_tokens: int = 0,
        group_tokens: int = 0,
    ) -> None: ...
    @property
    def scheduled(self) -> npt.NDArray[np.int32]: ...
    @property
    def computed(self) -> npt.NDArray[np.int32]: ...
    @property
    def decode_threshold(self) -> int: ...
    @property
    def sm_budget(self) -> int: ...
    @property
    def pad_tokens(self) -> int: ...
    @property
    def group_tokens(self) -> int: ...
    def __len__(self) -> int: ...

class StepEstimate:
    @property
    def no_overlap(self) -> int: ...
    @property
    def overlap(self) -> int: ...
    @property
    def draft(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def bottleneck(self) -> str: ...
    @property
    def per_resource(self) -> dict[str, int]: ...
    @property
    def rows(self) -> list[tuple[str, str, str, float, float, float, float]]: ...
    @property
    def terms(self) -> list[TermCost]: ...
    def _repr_html_(self) -> str: ...

class Kernel:
    def __init__(self, plan: Any) -> None: ...
    def step_time(self, batch: Batch) -> StepEstimate: ...
    @property
    def plan(self) -> Any: ...

Resource: Any
PairFigure: Any
PassRows: Any
ReadClass: Any
PairClass: Any
FeaturePlan: Any
Term: Any
Stage: Any
Pass: Any
Plan: Any

def __getattr__(name: str) -> Any: ...
