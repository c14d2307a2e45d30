"""Step times equal the reference kernel's on every deployment and batch of the golden vectors."""

from __future__ import annotations

import golden_files
import pytest
from golden_files import RESOURCES, Golden, within

NAMES = golden_files.names()
pytestmark = [pytest.mark.golden, pytest.mark.skipif(not NAMES, reason=golden_files.ABSENT)]

RESOURCE_NS, SUM_NS = 5, 25  # tolerance beside 1e-9 relative


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return golden_files.load(request.param)


def test_resources_and_sums(golden: Golden) -> None:
    wrong = []
    for case, batch in golden.batches():
        estimate, expect = golden.kernel.step_time(batch), case["expect"]
        assert estimate.tokens == expect["tokens"]
        compared = [
            (
                f"batches.per_resource_ns.{name}",
                estimate.per_resource[name],
                expect["per_resource_ns"].get(name, 0),
                RESOURCE_NS,
            )
            for name in RESOURCES
        ]
        compared += [
            ("batches.overlap_ns", estimate.overlap, expect["overlap_ns"], SUM_NS),
            ("batches.no_overlap_ns", estimate.no_overlap, expect["no_overlap_ns"], SUM_NS),
        ]
        wrong += [
            f"{case['name']} {field}: {got} ns, not {want}"
            for field, got, want, tolerance in compared
            if not golden.skips(field) and not within(got, want, tolerance)
        ]
    assert not wrong, "\n".join(wrong[:10])


def test_bottleneck_where_one_resource_leads(golden: Golden) -> None:
    if golden.skips("batches.bottleneck"):
        pytest.skip("the file leaves the bottleneck out")
    for case, batch in golden.batches():
        expect = case["expect"]
        first, second = sorted(expect["per_resource_ns"].values(), reverse=True)[:2]
        if first > 0 and first - second > 2 * RESOURCE_NS + 2e-9 * first:
            assert golden.kernel.step_time(batch).bottleneck == expect["bottleneck"], case["name"]


def test_every_file_and_batch_is_compared() -> None:
    """The counts the vectors' README states, so that a file that is not read cannot pass unseen."""
    batches = sum(len(golden_files.load(name).data["batches"]) for name in NAMES)
    skipped = [name for name in NAMES if golden_files.load(name).skips("batches")]
    assert batches >= 20 * len(NAMES)
    assert len(skipped) <= 2
