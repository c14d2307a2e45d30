"""Options that name a deployment, shared by the commands that price or size one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.errors import DeploymentError

if TYPE_CHECKING:
    from steppe.kernel import Kernel


def _deployment(
    file: Annotated[
        Path | None, typer.Argument(help="Scenario and deployment file; or use --model and --hardware.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Catalog model, or the path of a config.json.")] = "",
    hardware: Annotated[str, typer.Option("--hardware", "-g", help="Catalog chip.")] = "",
    pool: Annotated[int, typer.Option(help="Pool of the deployment file.")] = 0,
    tp: Annotated[int, typer.Option(help="Tensor parallel width.")] = 1,
    dp: Annotated[int, typer.Option(help="Data parallel width.")] = 1,
    pcp: Annotated[int, typer.Option(help="Prefill context parallel width.")] = 1,
    dcp: Annotated[int, typer.Option(help="Decode context parallel width.")] = 1,
    ep: Annotated[bool, typer.Option("--ep", help="Expert parallelism over all ranks.")] = False,
    fabric: Annotated[str, typer.Option(help="Network between nodes, needed for more ranks than a node holds.")] = "",
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", "-e", metavar="KEY=VALUE", help="Engine setting, e.g. cache_dtype=fp8. Repeatable."),
    ] = None,
    engine_version: Annotated[
        str, typer.Option("--engine-version", help="vLLM release the deployment runs.")
    ] = "0.31.0",
) -> Kernel:
    """The kernel of the deployment the options name."""
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


def of_deployment(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes a kernel first, as one that takes the options of a deployment instead, after its own."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        named = {name: given.pop(name) for name in options}
        command(_deployment(**named), **given)

    # Type checkers alone import the kernel here, so its name is given. Signatures are evaluated by `inspect`, since
    # `get_type_hints` of Python 3.10 hides what is annotated behind an Optional wherever the default is None.
    of = functools.partial(inspect.signature, eval_str=True, locals={"Kernel": Any})
    options = of(_deployment).parameters
    own = list(of(command).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [each.replace(kind=keyword) for each in (*own, *options.values())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


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
