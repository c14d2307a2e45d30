"""Pictures show the numbers they are drawn from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import steppe

pytest.importorskip("matplotlib")

from steppe import plots


@pytest.fixture(scope="module")
def kernel() -> steppe.Kernel:
    return steppe.Kernel.build(model="gpt-oss-120b", hardware="h100", tp=2)


def heights(figure) -> list[float]:
    """Height of each stack of bars, left to right."""
    stacks: dict[float, float] = {}
    for bar in figure.axes[0].patches:
        stacks[bar.get_x()] = max(stacks.get(bar.get_x(), 0.0), bar.get_y() + bar.get_height())
    return [stacks[x] for x in sorted(stacks)]


@pytest.mark.parametrize("by", ["resource", "term"])
def test_a_stack_is_as_high_as_the_step_is_long(kernel: steppe.Kernel, by: str) -> None:
    steps = [(n, f"{n}@2048") for n in ("1", "64", "256")]
    figure = plots.step_breakdown(kernel, steps, by=by)
    wanted = [kernel.step_time(steppe.Batch([1] * int(n), [2048] * int(n))).no_overlap / 1e6 for n, _ in steps]
    assert heights(figure) == pytest.approx(wanted, rel=1e-9)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1", "64", "256"]


def test_an_unknown_breakdown_is_refused(kernel: steppe.Kernel) -> None:
    with pytest.raises(steppe.Error, match="'resource' or by 'term'"):
        plots.step_breakdown(kernel, [("1", "1@1")], by="layer")


def test_deployments_stand_side_by_side(kernel: steppe.Kernel) -> None:
    other = steppe.Kernel.build(model="gpt-oss-120b", hardware="b200", tp=2)
    batch = steppe.Batch([1] * 8, [512] * 8)
    figure = plots.compare({"a": kernel, "b": other}, batch)
    assert heights(figure) == pytest.approx([k.step_time(batch).no_overlap / 1e6 for k in (kernel, other)])


def test_curves_pass_through_the_step_times(kernel: steppe.Kernel) -> None:
    figure = plots.step_curves({"it": kernel}, [(c, f"16@{c}") for c in (256, 1024)], xlabel="context")
    line = figure.axes[0].lines[0]
    assert list(line.get_xdata()) == [256, 1024]
    assert list(line.get_ydata()) == [
        kernel.step_time(steppe.Batch([1] * 16, [c] * 16)).no_overlap / 1e6 for c in (256, 1024)
    ]


def test_concurrency_leaves_out_what_the_budget_has_no_room_for() -> None:
    kernel = steppe.Kernel.build(model="qwen3-8b", hardware="h100", max_num_batched_tokens=128, max_num_seqs=64)
    figure = plots.concurrency({"it": kernel}, isl=256, osl=64, levels=(1, 16, 128))
    latency, throughput = (axes.lines[0] for axes in figure.axes)
    assert list(latency.get_xdata()) == [1, 16]
    assert throughput.get_ydata()[1] > throughput.get_ydata()[0]


def test_memory_stacks_what_is_held_and_the_caches(kernel: steppe.Kernel) -> None:
    figure = plots.memory_bar(kernel, (1024, 65536), requests=4)
    wanted = [
        kernel.fixed_bytes().total
        + 4 * (kernel.sequence_variable_bytes(n) + kernel.sequence_bounded_bytes_at(n) + kernel.sequence_fixed_bytes())
        for n in (1024, 65536)
    ]
    assert heights(figure) == pytest.approx([each / 2**30 for each in wanted])


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_saving_twice_gives_the_same_file(kernel: steppe.Kernel, tmp_path: Path, suffix: str) -> None:
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        figure = plots.step_breakdown(kernel, [("1", "1@1024")], dark=folder == "c")
        files.append(plots.save(figure, tmp_path / folder / f"x{suffix}").read_bytes())
    assert files[0] == files[1]
    assert len(files[0]) > 1000


def test_dark_pictures_have_a_dark_ground(kernel: steppe.Kernel) -> None:
    light, dark = (plots.step_breakdown(kernel, [("1", "1@1024")], dark=each) for each in (False, True))
    assert sum(light.get_facecolor()[:3]) == 3.0
    assert sum(dark.get_facecolor()[:3]) < 0.6


def test_other_endings_are_refused(kernel: steppe.Kernel) -> None:
    with pytest.raises(steppe.Error, match=r"\.png, \.svg or \.pdf"):
        plots.save(plots.step_breakdown(kernel, [("1", "1@1024")]), "picture.bmp")


def test_without_matplotlib_the_error_says_what_to_install(
    kernel: steppe.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(steppe.Error, match=r"pip install 'steppe\[plot\]'"):
        plots.step_breakdown(kernel, [("1", "1@1024")])
