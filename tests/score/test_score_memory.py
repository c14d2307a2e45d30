"""Start-ups: what a row says, which questions it answers, and how an answer is judged."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from steppe.errors import DeploymentError, DocumentError
from steppe.score.memory import (
    GIB,
    Sized,
    Start,
    answers,
    documents,
    left_for_cache,
    measure,
    model_of,
    part_of,
    read_starts,
    report_json,
    terminal,
    to_markdown,
    totals,
)

GOLDEN = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).parents[2] / "../shared/golden"))
STARTS = GOLDEN.parent / "accuracy/kv_capacity_points.csv"


def start(**changes: str) -> Start:
    plain = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "H100 (79.18 GiB)",
        "tp": "1",
        "max_model_len": "16000",
        "gpu_memory_utilization": "0.9",
        "weights_gib": "15",
        "available_kv_gib": "50",
        "max_concurrency": "25",
    } | changes
    return Start(7, plain["model"], plain)


def kernel(request: float = 2.0, weights: float = 15.0, total: float = 22.0, outside: float = 1.0) -> Any:
    return SimpleNamespace(
        memory=SimpleNamespace(sequence_startup_bytes=lambda: request * GIB),
        fixed_bytes=lambda: SimpleNamespace(weights=weights * GIB, total=total * GIB),
        pre_snapshot_bytes=lambda: outside * GIB,
        resolution=SimpleNamespace(
            chip=SimpleNamespace(memory_gib=80.0), settings=SimpleNamespace(gpu_memory_utilization=0.9)
        ),
    )


@pytest.mark.parametrize(
    ("model", "quantization", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "", ("llama-3.1-8b-instruct", True)),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8 compressed-tensors", ("llama-3.1-70b-instruct-fp8", True)),
        ("Qwen/Qwen3-32B", "", ("qwen3-32b", True)),
        ("MiniMaxAI/MiniMax-M2.5", "fp8", ("minimax-m2.5", True)),
        ("minimax-m2.7-awq (recipe name)", "awq", ("minimax-m2.7", False)),
        ("Qwen/Qwen3.8-27B-FP8", "fp8", ("qwen3.5-27b", False)),
        ("Qwen/Qwen3-8B", "awq", ("qwen3-8b", False)),
        ("qwen3.6-35b-a3b-nvfp4 (local dir)", "modelopt nvfp4", ("qwen3.6-35b-a3b-nvfp4", True)),
    ],
)
def test_models(model: str, quantization: str, name: tuple[str, bool]) -> None:
    assert model_of(start(model=model, quantization=quantization)) == name


@pytest.mark.parametrize(
    ("gpu", "part"),
    [
        ("2x H100 (79.18 GiB)", "h100"),
        ("1x L40S 46GB", "l40s"),
        ("4x RTX PRO 6000 96GB", "rtx-pro-6000"),
        ("GH200 96GB", None),
        ("", None),
    ],
)
def test_parts(gpu: str, part: str | None) -> None:
    assert part_of(start(gpu=gpu)) == part


def test_settings_are_passed_as_stated() -> None:
    scenario, deployment = documents(
        start(kv_cache_dtype="auto (bf16)", speculative="mtp 3", enforce_eager="true", tp="2", ep="on")
    )
    assert scenario["cluster"]["hardware"] == "h100"
    (pool,) = deployment["pools"]
    assert pool["parallel"] == {"tp": 2, "pp": 1, "dp": 1, "enable_expert_parallel": True}
    assert pool["engine"] == {
        "cache_dtype": "auto",
        "max_model_len": 16000,
        "gpu_memory_utilization": 0.9,
        "cudagraph_mode": "NONE",
        "speculative": {"method": "mtp", "num_spec_tokens": 3},
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "some/model"}, "not in the catalog"),
        ({"tp": ""}, "tp is not stated"),
        ({"pp": "2"}, "pipeline stages are not sized"),
        ({"speculative": "dflash 7"}, "speculation 'dflash 7'"),
    ],
)
def test_rows_that_cannot_be_sized_say_why(changes: dict[str, str], message: str) -> None:
    (row,) = measure([start(**changes)], lambda s: documents(s) and kernel())
    assert message in str(row.refused)
    assert row.answers == {}


def test_one_gpu_needs_no_stated_width() -> None:
    assert start(tp="", gpu="1x L40S 46GB").tp == 1
    assert start(tp="", gpu="2x L4 24GB").tp is None


def test_all_three_questions() -> None:
    found = answers(start(), kernel())
    assert found["request"] == (2.0, 2.0)
    assert found["weights"] == (15.0, 15.0)
    assert found["capacity"] == (pytest.approx(80 * 0.9 - 21), 50.0)
    assert left_for_cache(kernel(total=80)) < 0


def test_tokens_stand_in_for_a_concurrency() -> None:
    found = answers(start(max_concurrency="", kv_tokens="400000"), kernel())
    assert found["request"] == (2.0, pytest.approx(50 / 25))


@pytest.mark.parametrize(
    ("blank", "left"),
    [
        ({"max_model_len": ""}, {"weights", "capacity"}),
        ({"max_concurrency": ""}, {"weights", "capacity"}),
        ({"weights_gib": ""}, {"request", "capacity"}),
        ({"gpu": ""}, {"request", "weights"}),
        ({"gpu_memory_utilization": ""}, {"request", "weights"}),
        ({"available_kv_gib": "-1.4"}, {"weights", "capacity"}),
        ({"quantization": "awq", "model": "Qwen/Qwen3-8B"}, {"request"}),
    ],
)
def test_blank_cells_are_not_guessed(blank: dict[str, str], left: set[str]) -> None:
    assert set(answers(start(**blank), kernel())) == left


def test_bars() -> None:
    def row(question: str, sized: float, logged: float) -> Sized:
        return Sized(start(), {question: (sized, logged)})

    assert row("request", 1.009, 1).passes("request")
    assert not row("request", 1.011, 1).passes("request")
    assert row("weights", 98.1, 100).passes("weights")
    assert not row("weights", 97.9, 100).passes("weights")
    assert row("capacity", 5.6, 5).passes("capacity")  # within 0.7 GiB
    assert row("capacity", 96, 100).passes("capacity")  # within 5 %
    assert not row("capacity", 5.8, 5).passes("capacity")
    assert row("capacity", -1.6, -1.4).passes("capacity")


def test_the_report_counts_and_marks_misses() -> None:
    rows = measure([start(), start(weights_gib="20"), start(model="x")], lambda s: documents(s) and kernel())
    found = totals(rows)
    assert (found["weights"]["answered"], found["weights"]["passed"]) == (2, 1)
    assert found["weights"]["largest"] == pytest.approx(25)
    made = json.loads(json.dumps(report_json(rows)))
    assert made["rows"][1]["weights"] == {"sized_gib": 15.0, "logged_gib": 20.0, "passes": False}
    assert "not in the catalog" in made["rows"][2]["refused"]
    page = to_markdown(rows)
    assert "15.00 / 20.00 (-25.0 %) !" in page
    assert "weights: 1 of 2 within the bar" in page
    with Path(os.devnull).open("w") as null:
        console = Console(width=200, record=True, file=null)
        console.print(terminal(rows))
        assert "request: 2 of 2 within the bar" in console.export_text()


def test_files_are_read_and_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["model", "gpu", "available_kv_gib", "tp"])
        writer.writeheader()
        writer.writerow({"model": "m", "gpu": "H200", "available_kv_gib": "six", "tp": "1"})
    (read,) = read_starts(path)
    assert (read.line, read.model, read.tp) == (2, "m", 1)
    with pytest.raises(DocumentError, match="line 2: column available_kv_gib must be a number, not 'six'"):
        read.number("available_kv_gib")
    path.write_text("a,b\n")
    with pytest.raises(DocumentError, match="no column model, gpu, available_kv_gib"):
        read_starts(path)
    with pytest.raises(DocumentError, match="cannot be read"):
        read_starts(tmp_path / "none.csv")


@pytest.mark.skipif(not STARTS.is_file(), reason=f"{STARTS} is not there")
def test_every_published_start_is_mapped_or_refused_with_a_reason() -> None:
    starts = read_starts(STARTS)
    assert len(starts) == 76
    mapped = 0
    for each in starts:
        try:
            documents(each)
            mapped += 1
        except DeploymentError as error:
            assert str(error)  # noqa: PT017
    assert mapped >= 30
