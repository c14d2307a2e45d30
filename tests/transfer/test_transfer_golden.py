"""Host overheads, tiers and transfers against the reference, deployment by deployment."""

from __future__ import annotations

import pytest
from golden_files import ABSENT, ROOT, load, names, within

from steppe.errors import Error

pytestmark = [
    pytest.mark.golden,
    pytest.mark.skipif(not (ROOT / "expected").is_dir(), reason=ABSENT),
]
NEVER = 2**63 - 1  # the reference's answer where there is none
NANOSECONDS = 5
DEPLOYMENTS = pytest.mark.parametrize("name", names())


@DEPLOYMENTS
def test_host_overheads(name: str) -> None:
    golden = load(name)
    host, kernel = golden.data["host"], golden.kernel
    if golden.skips("host"):
        pytest.skip("named in the file's skip list")
    for prompt, want in host["admission_overhead_ns"]:
        assert within(kernel.admission_overhead(prompt), want, NANOSECONDS), prompt
    assert within(kernel.output_token_overhead(), host["output_token_overhead_ns"], NANOSECONDS)
    assert within(kernel.completion_overhead(), host["completion_overhead_ns"], NANOSECONDS)


@DEPLOYMENTS
def test_tier_times(name: str) -> None:
    """Equal wherever the deployment offloads to the tier. The reference prices any device of the catalog and calls an
    unknown one 292 years away; here both are errors, the first only where the deployment states its tiers."""
    golden = load(name)
    if golden.skips("tier_time_ns"):
        pytest.skip("named in the file's skip list")
    resolution = golden.kernel.resolution
    offload = resolution.deployment.offload
    stated = {each.tier for each in offload.tiers} if offload else set(resolution.scenario.cluster.storage)
    allowed = stated or set(resolution.storage)
    for tier, direction, size, depth, want in golden.data["tier_time_ns"]:
        if tier in allowed:
            assert within(golden.kernel.tier_time(tier, direction, size, depth), want, NANOSECONDS), tier
        else:
            assert want == NEVER or tier in resolution.storage
            with pytest.raises(Error, match=f"tier: '{tier}'"):
                golden.kernel.tier_time(tier, direction, size, depth)


@DEPLOYMENTS
def test_transfer_times(name: str) -> None:
    """Equal but for transfers to another node where the scenario names no network: the reference charges them as on one
    node, here they are refused. Places are [node, rack] in the files and (rack, node) in the library."""
    golden = load(name)
    if golden.skips("pd_transfer_time_ns"):
        pytest.skip("the reference's cache size differs here by what the file says")
    kernel, resolution = golden.kernel, golden.kernel.resolution
    for tokens, source, target, want in golden.data["pd_transfer_time_ns"]:
        a, b = tuple(source[::-1]), tuple(target[::-1])
        in_rack = resolution.one_nvlink_domain and a[0] == b[0]
        if a != b and not in_rack and resolution.fabric is None:
            with pytest.raises(Error, match="names no network"):
                kernel.pd_transfer_time(tokens, a, b)
            assert within(kernel.pd_transfer_time(tokens, a, a), want, NANOSECONDS), (tokens, source, target)
        else:
            assert within(kernel.pd_transfer_time(tokens, a, b), want, NANOSECONDS), (tokens, source, target)
