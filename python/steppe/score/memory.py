"""Scores memory on measured start-ups: what the engine logged, against what is sized here.

Three questions, each asked of the rows that state what it needs (docs/research/memory.md):

* `request`: cache one longest request holds, from the memory stated for the cache and the concurrency (or tokens); with
  it the tokens, the concurrency and the longest request that this memory makes;
* `weights`: bytes loaded a rank;
* `capacity`: memory left for the cache, or the concurrency it makes, from part, utilization and layout.

Blank cells are not guessed (`steppe.score.launches`): a row without what a question needs does not answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from steppe.engine.releases import TOKENS_AT_LENGTH
from steppe.errors import DeploymentError, Error
from steppe.score.launches import Launch, World, launch_of
from steppe.score.sizing import GIB, Sized, left_for_cache, size
from steppe.score.starts import Start

QUESTIONS: Final = ("request", "weights", "capacity")
BARS: Final = {"request": 0.01, "weights": 0.02, "capacity": 0.05}  # relative
CAPACITY_GIB: Final = 0.7  # or this much, whichever is wider
AGREE: Final = 0.01  # worlds whose answers lie this close give one answer
SIXTEEN_BITS: Final = 0.8  # of what 16-bit attention layers alone would take: below it a cache was not 16-bit
EIGHT_BITS: Final = 0.49  # of the same: what no 8-bit cache is below

SizeOf = Callable[[Launch, World], Sized]
LeftOf = Callable[[Launch, World], float]


@dataclass(slots=True)
class Row:
    """One start-up and what was made of it.

    `figures`: name -> (predicted, measured). `answers`: question -> the name of the figure that judges it. `without`:
    question -> why it is not answered. `candidates`: request GiB of every launch the row may be, where they differ, to
    be held against `logged_request`.
    """

    start: Start
    model: str = ""
    figures: dict[str, tuple[float, float]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
    candidates: list[float] = field(default_factory=list)
    logged_request: float | None = None
    assumed: list[str] = field(default_factory=list)

    def error(self, question: str) -> float:
        """Signed relative error of an answer."""
        return self.figure_error(self.answers[question])

    def figure_error(self, name: str) -> float:
        """Signed relative error of a figure."""
        predicted, measured = self.figures[name]
        return predicted / measured - 1

    def passes(self, question: str) -> bool:
        """Whether an answer is within its bar."""
        name = self.answers[question]
        predicted, measured = self.figures[name]
        slack = BARS[question] * abs(measured)
        if name == "available_kv_gib":
            slack = max(slack, CAPACITY_GIB)
        return abs(predicted - measured) <= slack

    @property
    def main(self) -> str | None:
        """The question a row is judged by: the first one it answers."""
        return next((question for question in QUESTIONS if question in self.answers), None)

    @property
    def unanswered(self) -> str | None:
        """Why the row answers nothing; None where it answers something."""
        if self.answers:
            return None
        return next((self.without[q] for q in QUESTIONS if q in self.without), "states no figure to compare")


def measure(starts: Iterable[Start], sized: SizeOf = size, left: LeftOf = left_for_cache) -> list[Row]:
    """Size every start-up; a row that does not say enough keeps the reason."""
    return [_row(start, sized, left) for start in starts]


def _row(start: Start, sized: SizeOf, left: LeftOf) -> Row:
    row = Row(start)
    try:
        launch = launch_of(start)
        row.model, row.assumed = launch.checkpoint.name, list(launch.assumed)
        made = sized(launch, launch.worlds[0])
    except Error as error:
        row.without = dict.fromkeys(QUESTIONS, _short(error))
        return row
    for question, ask in (("request", _request), ("weights", _weights)):
        try:
            ask(row, launch, made, sized)
        except Error as error:
            row.without[question] = _short(error)
    try:
        _capacity(row, launch, made, left)
    except Error as error:
        row.without["capacity"] = _short(error)
    return row


# --- questions ----------------------------------------------------------------------------------------------------


def _request(row: Row, launch: Launch, made: Sized, sized: SizeOf) -> None:
    start = row.start
    available, needed = start.number("available_kv_gib"), start.needed_gib
    concurrency = logged_concurrency(start, launch, made)
    asked = available is not None and available > 0 and (concurrency or start.estimated_len)
    if not asked and not needed:
        _length_from_tokens(row, launch, made, sized)
        return
    if available and concurrency:
        row.logged_request = available / concurrency
    _check_worlds(row, launch, made, sized)
    if needed:
        row.figures["needed_gib"] = made.request_bytes / GIB, needed
        row.answers["request"] = "needed_gib"
    if not asked or available is None:
        return
    if start.estimated_len:
        row.figures["max_len"] = made.longest(available * GIB), start.estimated_len
        row.answers.setdefault("request", "max_len")
    if concurrency:
        logged = available / concurrency
        _check_sixteen_bits(launch, made, logged)
        row.figures["request_gib"] = made.request_bytes / GIB, logged
        row.answers["request"] = "request_gib"
        row.figures["max_concurrency"] = made.concurrency(available * GIB), concurrency
        if start.number("kv_tokens") and made.length and _tokens_at_length(launch, made):
            tokens = made.concurrency(available * GIB) * made.length
            row.figures["kv_tokens"] = int(tokens), start.number("kv_tokens") or 0.0


def _length_from_tokens(row: Row, launch: Launch, made: Sized, sized: SizeOf) -> None:
    """An auto-fitted length beside the logged tokens alone: the longest request these tokens' blocks serve."""
    start, tokens = row.start, row.start.number("kv_tokens")
    if not (tokens and start.noted(r"auto-?fit")):
        raise DeploymentError("memory for the cache or concurrency not stated")
    fitted = start.count("max_model_len")
    if not fitted or not made.length:
        raise DeploymentError("the fitted length is not stated")
    _check_worlds(row, launch, made, sized)
    pool = tokens / made.length * made.request_bytes
    row.figures["max_len"] = made.longest(pool), fitted
    row.answers["request"] = "max_len"


def _weights(row: Row, launch: Launch, made: Sized, sized: SizeOf) -> None:
    weights = row.start.number("weights_gib")
    if not weights:
        raise DeploymentError("weights not stated")
    if not launch.checkpoint.weighed or not launch.drafter_weighed:
        raise DeploymentError("how this checkpoint stores its weights is not known")
    _check_loader(row, launch)
    row.figures["weights_gib"] = made.weights / GIB, weights
    row.answers["weights"] = "weights_gib"


def _check_loader(row: Row, launch: Launch) -> None:
    """Refuse what loads weights in a way of its own. Raises DeploymentError."""
    if launch.parallel["pp"] > 1:
        raise DeploymentError("weights of pipeline stages are not sized")
    if row.start.noted(r"\b(fork|patched)\b"):
        raise DeploymentError("a fork or a patched engine: how it loads weights is not known")


def _capacity(row: Row, launch: Launch, made: Sized, left: LeftOf) -> None:
    start, available = row.start, row.start.number("available_kv_gib")
    concurrency = start.number("max_concurrency")
    if start.kv_by_bytes:
        raise DeploymentError("the cache was sized by bytes, not from the part")
    if start.number("gpu_memory_utilization") is None:
        raise DeploymentError("utilization not stated")
    if launch.part is None:
        raise DeploymentError("part not stated, or not known")
    if not launch.checkpoint.weighed or not launch.drafter_weighed:
        raise DeploymentError("how this checkpoint stores its weights is not known")
    _check_loader(row, launch)
    if start.noted("other processes share"):
        raise DeploymentError("other processes share the part")
    if launch.release is None:
        raise DeploymentError("release not stated: it decides what the profile holds")
    if available is None and not concurrency:
        raise DeploymentError("neither memory for the cache nor a concurrency stated")
    free = left(launch, launch.worlds[0])
    if available is not None:
        row.figures["available_kv_gib"] = free / GIB, available
        row.answers["capacity"] = "available_kv_gib"
    elif concurrency:
        row.figures["max_concurrency"] = made.concurrency(max(0.0, free)), concurrency
        row.answers["capacity"] = "max_concurrency"


# --- what a row may have been ---------------------------------------------------------------------------------------


def logged_concurrency(start: Start, launch: Launch, made: Sized) -> float | None:
    """Longest requests the log says fit. Tokens over length have more digits, where the release prints them so and the
    two agree; else the printed concurrency."""
    tokens, printed, length = start.number("kv_tokens"), start.number("max_concurrency"), made.length
    if not tokens or not length:
        return printed
    exact = tokens / length
    if printed is None:
        return exact if _tokens_at_length(launch, made) else None
    return exact if abs(exact - printed) <= 0.0051 else printed


def _tokens_at_length(launch: Launch, made: Sized) -> bool:
    """Whether the log's tokens are concurrency x length: so in recent releases, and in any with one cache group."""
    return made.groups == 1 or all(world.release >= TOKENS_AT_LENGTH for world in launch.worlds)


def _check_worlds(row: Row, launch: Launch, made: Sized, sized: SizeOf) -> None:
    """Refuse a row whose unstated settings change the answer by more than 1 %. Raises DeploymentError naming them."""
    first = launch.worlds[0]
    sizes = {first: made.request_bytes}
    for world in launch.worlds[1:]:
        try:
            sizes[world] = sized(launch, world).request_bytes
        except Error:  # a launch the engine refuses is not the one that was logged
            continue
    axes = {
        "release": "release",
        "part": "part",
        "tokens": "number of drafted tokens",
        "caches_prefixes": "prefix caching",
    }
    unsaid = []
    for axis, words in axes.items():
        others = [size for world, size in sizes.items() if getattr(world, axis) != getattr(first, axis)]
        if axis == "caches_prefixes":  # a release of its own decides it, too
            others = [size for world, size in sizes.items() if world.release == first.release
                      and world.caches_prefixes != first.caches_prefixes]  # fmt: skip
        if any(abs(size / sizes[first] - 1) > AGREE for size in others):
            unsaid.append(words)
    if unsaid:
        row.candidates = sorted({round(size / GIB, 4) for size in sizes.values()})
        low, high = row.candidates[0], row.candidates[-1]
        raise DeploymentError(f"{', '.join(unsaid)} not stated: {low:.2f} to {high:.2f} GiB a request")


def _check_sixteen_bits(launch: Launch, made: Sized, logged: float) -> None:
    """Refuse a row that leaves the cache dtype blank and cannot have run the default: its attention layers alone would
    take more than the log leaves a request, and half of that would not."""
    stated = launch.start.text("kv_cache_dtype").lower()
    if (stated and not stated.startswith("auto")) or "cache_dtype" in launch.engine or not made.length:
        return
    least = made.memory.sequence_variable_bytes(made.length) / GIB
    if EIGHT_BITS * least <= logged < SIXTEEN_BITS * least:
        raise DeploymentError(f"cache dtype not stated, and 16 bits would take {least:.1f} of {logged:.1f} GiB")


def _short(error: Error) -> str:
    """One line of a refusal: without the rule's code and source, and without the model's own name."""
    return str(error).split(" [")[0].split("\n")[0].rstrip(".")


# --- totals ---------------------------------------------------------------------------------------------------------


def totals(rows: Sequence[Row], *, checked: bool = False) -> dict[str, dict[str, Any]]:
    """By question: answers, how many pass, median and largest absolute error as fractions. `checked`: of the rows whose
    own figures agree alone."""
    made: dict[str, dict[str, Any]] = {}
    for question in QUESTIONS:
        asked = [row for row in rows if question in row.answers]
        if checked:
            asked = [row for row in asked if row.start.text("checked").lower() == "yes"]
        errors = sorted(abs(row.error(question)) for row in asked)
        made[question] = {
            "answered": len(asked),
            "passed": sum(row.passes(question) for row in asked),
            "median_error": errors[len(errors) // 2] if errors else None,
            "largest_error": errors[-1] if errors else None,
        }
    return made


def report_json(rows: Sequence[Row]) -> dict[str, object]:
    """Rows, in file order, and totals by question."""
    summary: dict[str, object] = {
        "rows": len(rows),
        "answered": sum(row.main is not None for row in rows),
        "unanswered": sum(row.main is None for row in rows),
        **totals(rows),
        "checked": totals(rows, checked=True),
    }
    return {"rows": [_row_json(row) for row in rows], "summary": summary}


def _row_json(row: Row) -> dict[str, object]:
    start = row.start
    figures: dict[str, object] = {}
    for name, (predicted, measured) in row.figures.items():
        figures[f"predicted_{name}"] = predicted
        figures[f"measured_{name}"] = measured
    return {
        "line": start.line,
        "source": start.text("source"),
        "model": start.model,
        "sized_as": row.model or None,
        "gpu": start.text("gpu"),
        "checked": start.text("checked"),
        **figures,
        "error": row.error(row.main) if row.main else None,
        "errors": {question: row.error(question) for question in row.answers},
        "passes": {question: row.passes(question) for question in row.answers},
        "not_answered": {q: reason for q, reason in row.without.items() if q not in row.answers},
        "request_gib_candidates": row.candidates,
        "logged_request_gib": row.logged_request,
        "assumed": row.assumed,
        "unanswered": row.unanswered,
    }
