"""`cli.md`: every command with its arguments and options, read from the functions that run them.

The functions' annotations, not the option parser's objects: these change between the parser's releases, and the page
must not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from steppe.docgen.markdown import code, page, table

COMPLETION = """## Shell completion

<!-- skip: changes the configuration of your shell -->
```sh
steppe --install-completion      # for the shell you are in: bash, zsh, fish or PowerShell
steppe --show-completion         # print the script instead, to place it yourself
```

Open a new shell afterwards. Commands and options complete; `steppe catalog list` prints the names to use with them."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One argument or option: how it is written, what it means, its default as text."""

    written: str
    meaning: str
    default: str


def cli() -> str:
    """The page of the command line."""
    from steppe.cli import app

    parts = [
        "# Command line",
        str(app.info.help),
        "Tables are for people; `--json` prints the same for programs. Bad input ends with exit code 2 and one message "
        "on the standard error stream. Every command has `--help`.",
        COMPLETION,
    ]
    for path, function in _commands("steppe", app):
        parts += _described(path, function)
    return page(*parts)


def _commands(path: str, app: typer.Typer) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Commands of an application and of the groups in it, as (path, function), in the order they were registered."""
    for command in app.registered_commands:
        if command.callback is not None:
            yield f"{path} {command.name or command.callback.__name__}", command.callback
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(f"{path} {group.name}", group.typer_instance)


def _described(path: str, function: Callable[..., Any]) -> list[str]:
    arguments, options = _parameters(function)
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *(each.written for each in arguments)])
    parts = [f"## {path}", f"`{usage}`", inspect.getdoc(function) or ""]
    if arguments:
        parts.append(table(("argument", "meaning"), [(code(each.written), each.meaning) for each in arguments]))
    if options:
        rows = [(code(each.written), each.meaning, code(each.default)) for each in options]
        parts.append(table(("option", "meaning", "default"), rows))
    return [part for part in parts if part]


def _parameters(function: Callable[..., Any]) -> tuple[list[_Parameter], list[_Parameter]]:
    arguments: list[_Parameter] = []
    options: list[_Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        hint = parameter.annotation
        kind, info = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, parameter.default)
        default = parameter.default
        required = default is inspect.Parameter.empty
        shown = "" if required or default in (None, "", False) else str(default)
        if isinstance(info, ArgumentInfo):
            word = str(info.metavar or name).upper() + ("..." if _many(kind) else "")
            arguments.append(_Parameter(word if required else f"[{word}]", info.help or "", shown))
        elif isinstance(info, OptionInfo) and not info.hidden:
            first = [info.default] if isinstance(info.default, str) else []  # in Annotated the first name lands there
            names = ", ".join([*first, *(info.param_decls or ())]) or f"--{name.replace('_', '-')}"
            value = "" if kind is bool else f" {info.metavar or _word(kind)}"
            options.append(_Parameter(names + value, info.help or "", "required" if required else shown))
    return arguments, options


def _many(kind: Any) -> bool:
    return get_origin(kind) is list or any(get_origin(part) is list for part in get_args(kind))


def _word(kind: Any) -> str:
    """What stands for an option's value where its author named nothing."""
    inner = [part for part in get_args(kind) if part is not type(None)]
    return (
        _word(inner[0]) if inner else {"int": "INTEGER", "float": "NUMBER", "Path": "PATH"}.get(kind.__name__, "TEXT")
    )
