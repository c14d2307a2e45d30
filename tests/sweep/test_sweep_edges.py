"""What a sweep does where there is no cache to fill, no room, no Dask, and a terminal to show progress on."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

import steppe
from steppe import sweep as sweeps
from steppe.cli import app
from steppe.cli.sweep import _shown


@pytest.fixture(scope="module")
def kernel() -> steppe.Kernel:
    return steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")


def test_a_model_that_does_not_fit_fits_no_request_and_is_priced_all_the_same() -> None:
    large = steppe.Kernel.build(model="llama-3.1-70b-instruct-fp8", hardware="l40s")
    rows = sweeps.sweep(large, sweeps.grid([1, 2], [10]))
    assert rows["fits"].tolist() == [False, False]
    assert (rows["no_overlap"] > 0).all()


def test_a_request_longer_than_the_deployment_serves_is_an_error() -> None:
    short = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100", max_model_len=4096)
    assert sweeps.sweep(short, sweeps.grid([1], [4095]))["fits"].tolist() == [True]
    with pytest.raises(steppe.Error, match="batch 1: computed \\+ scheduled exceeds the deployment's max_model_len"):
        sweeps.sweep(short, sweeps.grid([1], [4095, 4096]))


def test_a_chunk_priced_from_bytes_is_the_same_chunk(kernel: steppe.Kernel) -> None:
    points = sweeps.grid([0, 3], [100, 900], [0, 64])[1:]
    points = points[(points["concurrency"] > 0) | (points["prefill"] > 0)]
    assert (sweeps.price_chunk(kernel.to_bytes(), points) == sweeps.price_points(kernel, points)).all()


def test_a_cluster_without_dask_names_the_extra(kernel: steppe.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(steppe.Error, match=r"pip install 'steppe\[dask\]'"):
        sweeps.sweep(kernel, sweeps.grid([1], [1]), scheduler="tcp://127.0.0.1:1")


def test_progress_is_shown_on_a_terminal_and_for_long_sweeps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with _shown(1999) as none:
        assert none is None
    shown = _shown(2000)
    with shown as advance:
        assert advance is not None
        advance(500, 2000)
        (task,) = shown._bar.tasks
        assert (task.completed, task.total) == (500, 2000)
    assert not shown._bar.live.is_started
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with _shown(2000) as none:
        assert none is None


def test_prefills_are_a_column_of_their_own_where_there_are_any() -> None:
    words = ["sweep", "--model", "llama-3.1-8b-instruct", "--hardware", "h100", "-n", "0,1", "-c", "10"]
    with_prefill = CliRunner().invoke(app, [*words, "--prefill", "64"])
    assert with_prefill.exit_code == 0, with_prefill.output
    lines = [line.split() for line in with_prefill.output.splitlines()]
    assert ["decodes", "context", "prefill", "ms"] in [line[:4] for line in lines]
    assert [line[:3] for line in lines if line[1:2] == ["10"]] == [["0", "10", "64"], ["1", "10", "64"]]
    without = CliRunner().invoke(app, ["sweep", *words[1:5], "-n", "1", "-c", "10"])
    assert "prefill" not in without.output
