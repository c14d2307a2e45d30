"""Scores memory on measured start-ups: what the engine logged, against what is sized here.

Three questions, each asked of the rows that state what it needs (docs/research/accuracy.md):

* `request`: bytes one longest request holds, from the logged memory for the cache and concurrency (or tokens);
* `weights`: bytes loaded a rank;
* `capacity`: memory left for the cache, from part, utilization and layout.

Blank cells are not guessed: a row without what a question needs does not answer it.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steppe.errors import DeploymentError, DocumentError, Error

GIB = float(2**30)
QUESTIONS = ("request", "weights", "capacity")
BARS = {"request": 0.01, "weights": 0.02, "capacity": 0.05}  # relative
CAPACITY_GIB = 0.7  # or this much, whichever is wider

# First match decides. `{q}` is the suffix of the row's quantization, `{1}` what the pattern's group matched. A model
# the catalog lacks may stand under one of the same cache geometry (`~`): such a row answers the request question alone.
MODELS: tuple[tuple[str, str], ...] = (
    (r"llama.?3\.[13]-?.?70b.*fp8", "llama-3.1-70b-instruct-fp8"),
    (r"qwen3\.[568]-27b", "~qwen3.5-27b"),  # 16 full layers of 4 heads of 256, 48 delta-net layers
    (r"minimax-m2\.7-awq", "~minimax-m2.7"),
    (r"qwen3-coder-30b-a3b", "qwen3-30b-a3b{q}"),
    (r"qwen3-14b-awq", "~qwen3-14b"),
    (r"qwen3-(4|14)b", "qwen3-{1}b{q}"),
    (r"kimi-linear-48b", "~kimi-linear-48b-a3b-instruct"),
    (r"glm-4\.6", "glm-4.6{q}"),
    (r"llama.?3\.[13]-?.?70b", "llama-3.1-70b-instruct{q}"),
    (r"llama.?3\.1.?8b", "llama-3.1-8b-instruct{q}"),
    (r"qwen3-(0\.6|1\.7|8|32)b(?!-awq)", "qwen3-{1}b{q}"),
    (r"qwen3-vl-30b-a3b", "qwen3-vl-30b-a3b-instruct{q}"),
    (r"qwen3-vl-4b", "qwen3-vl-4b-instruct{q}"),
    (r"minimax-m2\.(5|7)(?!-awq)", "minimax-m2.{1}{q}"),
    (r"gpt-oss-(20|120)b", "gpt-oss-{1}b"),
    (r"glm-5\.2-nvfp4", "glm-5.2-nvfp4"),
    (r"glm-5\.3$", "glm-5.3{q}"),
    (r"nemotron-3\.5-lightning", "nemotron-3.5-lightning-30b-a3b-nvfp4"),
    (r"qwen3\.6-35b-a3b-nvfp4", "qwen3.6-35b-a3b-nvfp4"),
)
SUFFIX = {"": "", "none": "", "fp8": "-fp8", "nvfp4": "-nvfp4", "mxfp4": ""}
NATIVE_FP8 = ("minimax-m2.5-fp8", "minimax-m2.7-fp8")  # the checkpoint is FP8 as it comes
PARTS = (
    (r"\bH100\b", "h100"),
    (r"\bH200\b", "h200"),
    (r"\bB200\b", "b200"),
    (r"\bB300\b", "b300"),
    (r"\bL40S\b", "l40s"),
    (r"\bRTX PRO 6000\b|97,887 MiB", "rtx-pro-6000"),
)


@dataclass(frozen=True, slots=True)
class Start:
    """One logged start-up, as far as it is stated: settings as text, figures as numbers, None where blank."""

    line: int
    model: str
    values: dict[str, str]

    def text(self, name: str) -> str:
        """A cell, empty where blank."""
        return self.values.get(name, "").strip()

    def number(self, name: str) -> float | None:
        """A figure, None where blank. Raises DocumentError when the cell is not a number."""
        text = self.text(name)
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise DocumentError(f"line {self.line}: column {name} must be a number, not {text!r}") from None

    @property
    def tp(self) -> int | None:
        """Stated width; 1 for a log of one GPU."""
        stated = self.number("tp")
        if stated is not None:
            return int(stated)
        return 1 if re.match(r"(1x|one) ", self.text("gpu")) else None


@dataclass(slots=True)
class Sized:
    """What one start-up answers: question -> (sized, logged) in GiB; or why it answers nothing."""

    start: Start
    answers: dict[str, tuple[float, float]] = field(default_factory=dict)
    refused: str | None = None

    def error(self, question: str) -> float:
        """Signed relative error of an answer."""
        sized, logged = self.answers[question]
        return sized / logged - 1

    def passes(self, question: str) -> bool:
        """Whether an answer is within its bar."""
        sized, logged = self.answers[question]
        slack = BARS[question] * abs(logged)
        if question == "capacity":
            slack = max(slack, CAPACITY_GIB)
        return abs(sized - logged) <= slack


def read_starts(path: str | os.PathLike[str]) -> list[Start]:
    """Start-ups of a CSV file. Raises DocumentError when it cannot be read or is not of the layout."""
    file = Path(path)
    try:
        reader = csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"{file}: cannot be read: {error}") from error
    missing = [name for name in ("model", "gpu", "available_kv_gib") if name not in (reader.fieldnames or ())]
    if missing:
        raise DocumentError(f"{file}: no column {', '.join(missing)}; a file of start-ups needs them")
    return [Start(reader.line_num, row["model"] or "", {k: v or "" for k, v in row.items() if k}) for row in reader]


def model_of(start: Start) -> tuple[str, bool]:
    """The catalog's name of the model, and whether it is that model or one of the same cache geometry.

    Raises DeploymentError where there is neither.
    """
    name = start.model.rsplit("/", 1)[-1].lower()
    stated = start.text("quantization").lower().split(" ")
    kind = next((k for k in ("nvfp4", "fp8", "mxfp4", "none") if k in stated), "" if stated == [""] else "other")
    for pattern, target in MODELS:
        found = re.search(pattern, name)
        if not found:
            continue
        itself = not target.startswith("~") and not ("{q}" in target and kind == "other")
        made = target.removeprefix("~").replace("{q}", SUFFIX.get(kind, ""))
        if found.groups():
            made = made.replace("{1}", found.group(1))
        return (made.removesuffix("-fp8") if made in NATIVE_FP8 else made), itself
    raise DeploymentError(f"{start.model}: not in the catalog")


def part_of(start: Start) -> str | None:
    """The catalog's name of the part, None where the row's is not in it."""
    return next((name for pattern, name in PARTS if re.search(pattern, start.text("gpu"))), None)


def _engine(start: Start) -> dict[str, Any]:
    engine: dict[str, Any] = {}
    dtype = re.sub(r"^auto.*", "auto", start.text("kv_cache_dtype"))
    if dtype:
        engine["cache_dtype"] = {"bf16": "bfloat16"}.get(dtype, dtype)
    for key in ("max_model_len", "max_num_batched_tokens"):
        value = start.number(key)
        if value is not None:
            engine[key] = int(value)
    utilization = start.number("gpu_memory_utilization")
    if utilization is not None:
        engine["gpu_memory_utilization"] = utilization
    if start.text("enforce_eager").lower() in ("true", "yes"):
        engine["cudagraph_mode"] = "NONE"
    drafting = start.text("speculative").lower()
    if drafting and drafting != "none":
        found = re.fullmatch(r"mtp (\d+).*", drafting)
        if not found:
            raise DeploymentError(f"speculation {drafting!r} is not sized from a log line")
        engine["speculative"] = {"method": "mtp", "num_spec_tokens": int(found.group(1))}
    return engine


def documents(start: Start) -> list[dict[str, Any]]:
    """Scenario and deployment of a start-up. Raises DeploymentError where the row does not say enough."""
    model, tp = model_of(start)[0], start.tp
    if tp is None:
        raise DeploymentError("tp is not stated")
    if (start.number("pp") or 1) > 1:
        raise DeploymentError("pipeline stages are not sized")
    dp = int(start.number("dp") or 1)
    part = part_of(start) or "h100"  # where the part is unknown only what does not depend on it is asked
    nodes = -(-tp * dp // 8)
    cluster: dict[str, Any] = {"hardware": part, "nodes": nodes, "gpus_per_node": 8}
    if nodes > 1:
        cluster["fabric"] = "ib-ndr-400"
    parallel = {"tp": tp, "pp": 1, "dp": dp, "enable_expert_parallel": start.text("ep") == "on"}
    name = f"{model} on {part}"
    return [
        {
            "kind": "Scenario",
            "name": name,
            "model": model,
            "coefficients": [f"{part}-{kind}" for kind in ("reference", "engine", "refined")],
            "engine_version": "0.31.0",
            "cluster": cluster,
        },
        {
            "kind": "Deployment",
            "name": name,
            "pools": [{"role": "colocated", "nodes": nodes, "parallel": parallel, "engine": _engine(start)}],
        },
    ]


def _open(start: Start) -> Any:
    import tempfile

    import yaml

    import steppe

    with tempfile.TemporaryDirectory(prefix="steppe-score-") as folder:
        path = Path(folder) / "deployment.yaml"
        path.write_text(yaml.safe_dump_all(documents(start), sort_keys=False), encoding="utf-8")
        return steppe.open(path)


def answers(start: Start, kernel: Any) -> dict[str, tuple[float, float]]:
    """(sized, logged) GiB of every question the row states enough for."""
    found: dict[str, tuple[float, float]] = {}
    available, length = start.number("available_kv_gib"), start.number("max_model_len")
    concurrency, tokens = start.number("max_concurrency"), start.number("kv_tokens")
    if available and available > 0 and length and (concurrency or tokens):
        logged = available / (concurrency if concurrency else (tokens or 0) / length)
        found["request"] = kernel.memory.sequence_startup_bytes() / GIB, logged
    itself, weights = model_of(start)[1], start.number("weights_gib")
    if weights and itself:
        found["weights"] = kernel.fixed_bytes().weights / GIB, weights
    if available is not None and itself and part_of(start) and start.number("gpu_memory_utilization"):
        found["capacity"] = left_for_cache(kernel) / GIB, available
    return found


def left_for_cache(kernel: Any) -> float:
    """Bytes of the budget that nothing else holds; negative where the model does not fit."""
    resolution = kernel.resolution
    budget = math.ceil(resolution.chip.memory_gib * GIB * resolution.settings.gpu_memory_utilization)
    return float(budget - (kernel.fixed_bytes().total - kernel.pre_snapshot_bytes()))


def measure(starts: Iterable[Start], build: Callable[[Start], Any] | None = None) -> list[Sized]:
    """Size every start-up; those that cannot be become rows with the reason."""
    rows: list[Sized] = []
    for start in starts:
        row = Sized(start)
        try:
            row.answers = answers(start, (build or _open)(start))
        except Error as error:
            row.refused = str(error)
        rows.append(row)
    return rows


def totals(rows: Sequence[Sized]) -> dict[str, dict[str, Any]]:
    """By question: answers, how many pass, median and largest absolute error in percent."""
    made: dict[str, dict[str, Any]] = {}
    for question in QUESTIONS:
        asked = [row for row in rows if question in row.answers]
        errors = sorted(100 * abs(row.error(question)) for row in asked)
        made[question] = {
            "answered": len(asked),
            "passed": sum(row.passes(question) for row in asked),
            "median": errors[len(errors) // 2] if errors else None,
            "largest": errors[-1] if errors else None,
        }
    return made


def report_json(rows: Sequence[Sized]) -> dict[str, object]:
    """Rows, in file order, and totals by question."""
    listed = [
        {
            "line": row.start.line,
            "model": row.start.model,
            "gpu": row.start.text("gpu"),
            "refused": row.refused,
            "checked": row.start.text("checked"),
            **{q: {"sized_gib": s, "logged_gib": m, "passes": row.passes(q)} for q, (s, m) in row.answers.items()},
        }
        for row in rows
    ]
    return {"rows": listed, "summary": totals(rows)}


def _line(row: Sized) -> list[str]:
    cells = [str(row.start.line), row.start.model, row.start.text("gpu"), row.start.text("checked")]
    for question in QUESTIONS:
        if question in row.answers:
            sized, logged = row.answers[question]
            mark = "" if row.passes(question) else " !"
            cells.append(f"{sized:.2f} / {logged:.2f} ({100 * row.error(question):+.1f} %){mark}")
        else:
            cells.append("-")
    return [*cells, row.refused or ""]


HEADINGS = ("line", "model", "GPU", "checked", "GiB a request", "weights GiB", "left for cache GiB", "refused")


def _summary_lines(rows: Sequence[Sized]) -> list[str]:
    lines = []
    for question, t in totals(rows).items():
        line = f"{question}: {t['passed']} of {t['answered']} within the bar"
        lines.append(
            line + (f", median error {t['median']:.2f} %, largest {t['largest']:.1f} %" if t["answered"] else "")
        )
    return lines


def terminal(rows: Sequence[Sized]) -> Any:
    """Sized / logged of every row, then totals, for `rich.print`."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Memory on measured start-ups: sized / logged, ! where outside the bar")
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in _line(row)))
    return Group(table, *(Text(line) for line in _summary_lines(rows)))


def to_markdown(rows: Sequence[Sized]) -> str:
    """The same as Markdown, for the accuracy page."""
    out = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    out += ["| " + " | ".join(cell.replace("|", "/") for cell in _line(row)) + " |" for row in rows]
    return "\n".join([*out, "", *_summary_lines(rows)]) + "\n"
