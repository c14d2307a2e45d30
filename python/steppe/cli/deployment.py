"""Options that name a deployment, shared by the commands that price or size one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.errors import DeploymentError

if TYPE_CHECKING:
    from steppe.kernel import Kernel

FILE = Annotated[Path | None, typer.Argument(help="Scenario and deployment file; or use --model and --hardware.")]
MODEL = Annotated[str, typer.Option("--model", "-m", help="Catalog model, or the path of a config.json.")]
HARDWARE = Annotated[str, typer.Option("--hardware", "-g", help="Catalog chip.")]
POOL = Annotated[int, typer.Option(help="Pool of the deployment file.")]
TP = Annotated[int, typer.Option(help="Tensor parallel width.")]
DP = Annotated[int, typer.Option(help="Data parallel width.")]
PCP = Annotated[int, typer.Option(help="Prefill context parallel width.")]
DCP = Annotated[int, typer.Option(help="Decode context parallel width.")]
EP = Annotated[bool, typer.Option("--ep", help="Expert parallelism over all ranks.")]
FABRIC = Annotated[str, typer.Option(help="Network between nodes, needed for more ranks than a node holds.")]
ENGINE = Annotated[
    list[str] | None,
    typer.Option("--engine", "-e", metavar="KEY=VALUE", help="An engine setting, e.g. cache_dtype=fp8. Repeatable."),
]
VERSION = Annotated[str, typer.Option("--engine-version", help="vLLM release the deployment runs.")]


def open_kernel(
    file: Path | None,
    model: str,
    hardware: str,
    *,
    pool: int = 0,
    tp: int = 1,
    dp: int = 1,
    pcp: int = 1,
    dcp: int = 1,
    ep: bool = False,
    fabric: str = "",
    engine: list[str] | None = None,
    engine_version: str = "0.31.0",
) -> Kernel:
    """The kernel the options name."""
    import steppe

    if file is not None:
        if model or hardware:
            raise DeploymentError("give a deployment file, or --model and --hardware, not both")
        return steppe.open(file, pool=pool)
    if not model or not hardware:
        raise DeploymentError("name what to price: a deployment file, or both --model and --hardware")
    return steppe.Kernel.build(
        model=model,
        hardware=hardware,
        tp=tp,
        dp=dp,
        pcp=pcp,
        dcp=dcp,
        enable_expert_parallel=ep,
        fabric=fabric,
        engine_version=engine_version,
        **engine_settings(engine or []),
    )


def engine_settings(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs as the engine section of a deployment; values read as YAML scalars, dots nest."""
    import yaml

    out: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise DeploymentError(f"--engine {pair!r}: write KEY=VALUE, e.g. cache_dtype=fp8")
        *outer, last = key.split(".")
        inside = out
        for name in outer:
            inside = inside.setdefault(name, {})
            if not isinstance(inside, dict):
                raise DeploymentError(f"--engine {pair!r}: {name} already has a value of its own; state one of the two")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise DeploymentError(f"--engine {pair!r}: the value is not a plain scalar ({error})") from None
        inside[last] = text if value is None or isinstance(value, dict | list) else value
    return out
