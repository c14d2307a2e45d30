"""Sweeps give the same rows however they run, and say them as a table, CSV, JSON and a picture."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import steppe
from steppe import sweep as sweeps
from steppe.cli import app

DEPLOYMENT = ["--model", "llama-3.1-8b-instruct", "--hardware", "h100"]


@pytest.fixture(scope="module")
def kernel() -> steppe.Kernel:
    """One small deployment."""
    return steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")


def test_counts_as_a_person_writes_them() -> None:
    assert sweeps.numbers("1,8,64") == [1, 8, 64]
    assert sweeps.numbers("1:256") == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert sweeps.numbers("3:20") == [3, 6, 12, 20]
    assert sweeps.numbers("100:200:50,7") == [100, 150, 200, 7]
    for wrong in ("", "a", "1:2:0", "5:1", "0:8", "-1", "1:2:3:4", "1.5"):
        with pytest.raises(steppe.Error, match=r"counts|range|doubling"):
            sweeps.numbers(wrong)


def test_rows_are_single_steps(kernel: steppe.Kernel) -> None:
    rows = sweeps.sweep(kernel, sweeps.grid([0, 1, 7], [100, 5000], [0, 512]))
    assert len(rows) == 12
    for row in rows:
        scheduled = [1] * row["concurrency"] + [row["prefill"]] * bool(row["prefill"])
        computed = [row["context"]] * row["concurrency"] + [0] * bool(row["prefill"])
        e = kernel.step_time(steppe.Batch(scheduled, computed))
        assert (row["no_overlap"], row["overlap"], row["draft"]) == (e.no_overlap, e.overlap, e.draft)
        assert {name: row[name] for name in steppe.RESOURCES} == e.per_resource
        assert steppe.RESOURCES[row["bottleneck"]] == e.bottleneck


def test_fits_is_where_the_cache_ends(kernel: steppe.Kernel) -> None:
    capacity = kernel.kv_capacity()
    assert kernel.caches is not None
    most = capacity.usable_blocks // kernel.caches.admission_blocks(4000)
    rows = sweeps.sweep(kernel, sweeps.grid([most, most + 1], [4000]))
    assert rows["fits"].tolist() == [True, False]


def test_chunks_do_not_show(kernel: steppe.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    points = sweeps.grid(range(40), [10, 1000, 9000])
    whole = sweeps.sweep(kernel, points)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(sweeps, "CHUNK_REQUESTS", 100)
    parts = sweeps.sweep(kernel, points, progress=lambda done, of: seen.append((done, of)))
    assert (parts == whole).all()
    assert len(seen) > 10
    assert seen[-1] == (len(points), len(points))
    assert len(sweeps.sweep(kernel, points[:0])) == 0


def test_processes_change_nothing(kernel: steppe.Kernel) -> None:
    points = sweeps.grid(range(1, 30), [10, 1000])
    assert (sweeps.sweep(kernel, points, workers=2) == sweeps.sweep(kernel, points)).all()
    with pytest.raises(steppe.Error, match="workers"):
        sweeps.sweep(kernel, points, workers=0)


@pytest.fixture(scope="module")
def cluster() -> Any:
    """Two Dask workers in processes of their own."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        yield cluster


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_loses_a_worker_changes_nothing(
    kernel: steppe.Kernel, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "CHUNK_REQUESTS", 20_000)
    points = sweeps.grid(range(1, 257), range(0, 20_000, 400))
    whole = sweeps.sweep(kernel, points)
    first = next(iter(cluster.workers.values())).pid
    killed: list[int] = []

    def kill_one(done: int, of: int) -> None:
        if not killed and done < of:
            os.kill(first, signal.SIGKILL)
            killed.append(done)

    rows = sweeps.sweep(kernel, points, scheduler=cluster.scheduler_address, progress=kill_one)
    assert killed
    assert killed[0] < len(points)
    assert (rows == whole).all()


def test_no_scheduler_is_an_error(kernel: steppe.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("refused")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(steppe.Error, match="no Dask scheduler answers at tcp://127"):
        sweeps.sweep(kernel, sweeps.grid([1], [1]), scheduler="tcp://127.0.0.1:1")


def test_command_line(tmp_path: Path) -> None:
    table = CliRunner().invoke(app, ["sweep", *DEPLOYMENT, "-n", "1:8", "-c", "2048"])
    assert table.exit_code == 0, table.output
    assert "KV fits" in table.output
    sheet, picture = tmp_path / "sweep.csv", tmp_path / "sweep.svg"
    words = ["sweep", *DEPLOYMENT, "-n", "1,64", "-c", "1000:3000:1000", "--csv", str(sheet), "--json"]
    result = CliRunner().invoke(app, [*words, "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    points = json.loads(result.output)["points"]
    with sheet.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [{name: str(value) for name, value in point.items()} for point in points] == rows
    assert [(each["concurrency"], each["context"]) for each in points] == [
        (n, tokens) for n in (1, 64) for tokens in (1000, 2000, 3000)
    ]
    assert all(each["no_overlap_ns"] > 0 and each["fits"] for each in points)
    assert picture.read_text().startswith("<?xml")


def test_pictures_take_any_sweep(kernel: steppe.Kernel) -> None:
    from steppe.sweep_plot import LABELS, sweep_figure

    for across, given in (
        ("concurrency", sweeps.grid([1, 2, 4], [10])),
        ("context", sweeps.grid([1, 2], [0, 10, 20])),
        ("prefill", sweeps.grid([1], [10], [0, 100, 200])),
    ):
        figure = sweep_figure(sweeps.sweep(kernel, given))
        assert figure.axes[0].get_xlabel() == LABELS[across]
        times = np.concatenate([line.get_ydata() for line in figure.axes[0].lines])
        assert (times > 0).any()
