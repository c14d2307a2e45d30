"""Carrying an experts kernel to a part that never ran it, by a sister kernel measured on both parts.

Marlin with MXFP4 weights and gpt-oss's activation is measured on L40S and RTX PRO 6000 only; Marlin with INT4 weights
is measured everywhere. Each parameter of the MXFP4 law is scaled by what turns the source's INT4 law into the target's,
under a mild pull towards "unchanged" that keeps parameters the INT4 law does not determine where they were. Carried
from L40S to RTX PRO 6000 and back, the MXFP4 law meets the measured rows within a geometric error of 1.11 and 1.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.fit import Fitted
from steppe.calibrate.parts import Part

SISTER, CARRIED = "int4_wo/marlin", "w4a16_mxfp4/marlin"
SOURCE = "l40s"
SCALED = ("t0", "t_ramp", "c_dim", "c_route", "c_tok", "c_row", "c_act", "eff", "bw_eff", "tile0")
PULL = 0.3  # weight of the pull on log scales; 0.1 to 1 give the same errors between the two measured parts
VALIDATION = "geometric error 1.11 (L40S to RTX PRO 6000) and 1.12 (back) on measured rows"


def _times(p: Mapping[str, Any]) -> Any:
    """The law over the sister table's own geometry: 384 experts of 7168 x 2048, top-8, sliced and spread."""
    tokens = np.unique(np.round(2.0 ** np.arange(0, 14.01, 0.5)))
    out = []
    for tp, ep in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (1, 8)):
        pairs = laws.busiest_rank(tokens, 384, 8, ep)
        touched = laws.touched_experts(pairs, 384, 8, ep, 0.5)
        out.append(laws.moe(p, tokens, 7168, 2048 / tp, 8, 384 / ep, 3, pairs, touched))
    return np.log(np.concatenate(out))


def scales(source: Mapping[str, Any], target: Mapping[str, Any], rates: Mapping[str, float]) -> dict[str, float]:
    """Factor on each parameter that turns the source's sister law into the target's."""
    from scipy.optimize import least_squares

    wanted = _times(target)

    def residuals(z: Any) -> Any:
        moved = {n: source[n] * np.exp(v) for n, v in zip(SCALED, z, strict=True)}
        return np.concatenate([_times({**source, **rates, **moved}) - wanted, PULL * z])

    end = least_squares(residuals, np.zeros(len(SCALED)), diff_step=1e-3)
    return dict(zip(SCALED, np.exp(end.x).tolist(), strict=True))


def carried(have: Mapping[tuple[str, str, str], Fitted], parts: list[Part]) -> list[Fitted]:
    """The MXFP4 Marlin law on every part that has the INT4 one and no MXFP4 table."""
    law, sister = have.get((SOURCE, "moe", CARRIED)), have.get((SOURCE, "moe", SISTER))
    out: list[Fitted] = []
    for part in parts:
        target = have.get((part.name, "moe", SISTER))
        if law is None or sister is None or target is None or (part.name, "moe", CARRIED) in have:
            continue
        rates = {k: target.params[k] for k in ("bw_Bps", "l2_B", "peak_flops")}
        factor = scales(sister.params, target.params, rates)
        params = {**law.params, **rates, **{n: law.params[n] * f for n, f in factor.items()}}
        origin = f"moe {CARRIED} of {SOURCE}"
        why = (
            f"No table times Marlin with MXFP4 weights and gpt-oss's activation here. Parameters of {origin}, scaled "
            f"by what turns its {SISTER} law into this part's; the method is worth a {VALIDATION}. A moe_perf table of "
            "this kernel on this part would replace it."
        )
        out.append(
            Fitted("moe", CARRIED, part.name, params, law.data, method="assumed", rationale=why,
                   extra={"copied_from": origin, "scaled_by": f"moe {SISTER}"})
        )  # fmt: skip
    return out
