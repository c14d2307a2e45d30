"""What a weight is stored as: its dtype, the tile one scale covers, and the precision it is multiplied in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Weight:
    """`dtype` as documents write it; `block` is "NxK" where one scale covers such a tile (None: one scale a tensor or
    a channel, or the tile the format itself fixes: 1x16 for nvfp4, 1x32 for mxfp4); `compute` is stated where the
    kernel multiplies in another precision than the weight's own rule says (weight-only 4-bit floats, fp32 gates)."""

    dtype: str
    block: str | None = None
    compute: str | None = None

    def keys(self, default: Weight) -> dict[str, Any]:
        """The node keys that state this weight in a graph whose global weight is `default`.

        A node that states a `weight_dtype` inherits no block from the global one.
        """
        keys: dict[str, Any] = {}
        if (self.dtype, self.block) != (default.dtype, default.block):
            keys["weight_dtype"] = self.dtype
            if self.block:
                keys["weight_block"] = self.block
        if self.compute:
            keys["compute_dtype"] = self.compute
        return keys


BF16 = Weight("bf16")
FP16 = Weight("fp16")
FP32 = Weight("fp32", compute="fp32")
