"""Kernels of every kind the running batch must follow: shipped sets, and the reference set of the golden documents."""

import os
from functools import cache
from pathlib import Path

import pytest

import steppe

ROOT = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).resolve().parents[3] / "shared" / "golden"))
SHIPPED = {
    "dense": {"model": "llama-3.1-8b-instruct", "hardware": "h100"},
    "windows": {"model": "gpt-oss-120b", "hardware": "h200"},
    "latent": {"model": "deepseek-v3", "hardware": "b200", "tp": 8},
    "latent dcp": {"model": "deepseek-v3", "hardware": "h200", "tp": 8, "dcp": 8},
    "sparse": {"model": "deepseek-v3.2", "hardware": "b200", "tp": 8},
    "hybrid": {"model": "qwen3.5-122b-a10b", "hardware": "h200", "tp": 4},
    "drafting": {
        "model": "deepseek-v3",
        "hardware": "b200",
        "tp": 8,
        "speculative": {"method": "mtp", "num_spec_tokens": 2},
    },
}
GOLDEN = ("wm-a-tp4", "mla-a-tp8-dcp8", "dsa-a-tp8-kvfp8-dcp4", "csa-b-tp8-dcp4", "d70-a-tp4")


@cache
def kernel_named(name: str) -> steppe.Kernel:
    """A kernel of one of the two lists, built once."""
    if name in SHIPPED:
        return steppe.Kernel.build(**SHIPPED[name])  # type: ignore[arg-type]
    documents = ROOT / "documents"
    path = documents / "scenarios" / f"{name}.yaml"
    if not path.exists():
        pytest.skip(f"no golden documents at {ROOT}: set STEPPE_GOLDEN to their folder")
    return steppe.open(path, catalog=documents / "catalog", registry=documents / "registry")


@pytest.fixture(params=[*SHIPPED, *GOLDEN])
def kernel(request: pytest.FixtureRequest) -> steppe.Kernel:
    """Each of them in turn."""
    return kernel_named(request.param)
