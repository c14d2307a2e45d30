"""Draw the pictures of the documentation anew: `python docs/figures.py [NAME...]`.

Each is drawn by `steppe.plots` from the shipped catalog, twice: `<name>.svg` for light pages and print, and
`<name>-dark.svg`. `--png` also writes PNGs, for looking at them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steppe import Kernel, plots

FOLDER = Path(__file__).parent / "figures"
BATCHES = (1, 4, 16, 32, 64, 128, 256)
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


def llama(hardware: str, tp: int) -> Kernel:
    """Llama 3.1 70B with FP8 weights and cache."""
    return Kernel.build(model="llama-3.1-70b-instruct-fp8", hardware=hardware, tp=tp, cache_dtype="fp8")


def step(dark: bool) -> Any:
    """A decode step by kernel, over the batch."""
    steps = [(str(n), f"{n}@2048") for n in BATCHES]
    return plots.step_breakdown(
        llama("h100", 4), steps, by="term", xlabel="decoding requests, 2,048 tokens of context each", dark=dark
    )


def context(dark: bool) -> Any:
    """A decode step over the context, for three models of different attention."""
    kernels = {
        "Llama 3.1 70B FP8, tp 8": Kernel.build(model="llama-3.1-70b-instruct-fp8", hardware="h200", tp=8),
        "DeepSeek V3 (latent), tp 8": Kernel.build(model="deepseek-v3", hardware="h200", tp=8),
        "gpt-oss 120B (windows), tp 8": Kernel.build(model="gpt-oss-120b", hardware="h200", tp=8),
    }
    return plots.step_curves(
        kernels,
        [(c, f"32@{c}") for c in CONTEXTS],
        xlabel="context (tokens)",
        title="a step of 32 decodes on H200",
        dark=dark,
    )


def parallelism(dark: bool) -> Any:
    """One model on eight GPUs, laid out four ways."""
    layouts = {
        "tp 8": {"tp": 8},
        "tp 8\nexperts ep 8": {"tp": 8, "enable_expert_parallel": True},
        "dp 2, tp 4\nexperts ep 8": {"tp": 4, "dp": 2, "enable_expert_parallel": True},
        "dp 8\nexperts ep 8": {"tp": 1, "dp": 8, "enable_expert_parallel": True},
    }
    bars = []
    for label, widths in layouts.items():
        kernel = Kernel.build(model="qwen3-235b-a22b-fp8", hardware="h200", **widths)  # type: ignore[arg-type]
        requests = 128 // int(widths.get("dp", 1))
        bars.append((label, kernel, f"{requests}@4096"))
    return plots.step_breakdowns(
        bars, title="Qwen3 235B FP8 on 8 H200: 128 decodes at 4,096 tokens, one step of every rank", dark=dark
    )


def concurrency(dark: bool) -> Any:
    """Time per token and throughput over the requests in flight."""
    kernels = {"4 x H100": llama("h100", 4), "8 x H100": llama("h100", 8), "2 x B200": llama("b200", 2)}
    return plots.concurrency(
        kernels, isl=1024, osl=1024, title="Llama 3.1 70B FP8, prompts and outputs of 1,024 tokens", dark=dark
    )


def memory(dark: bool) -> Any:
    """What one rank holds, over the context of its requests."""
    kernel = llama("h100", 4)
    lengths = (1024, 4096, 16384, 32768, 65536, 131072)
    title = "Llama 3.1 70B FP8 on four H100, 16 requests"
    return plots.memory_bar(kernel, lengths, requests=16, title=title, dark=dark)


def evidence(dark: bool) -> Any:
    """What the numbers of some deployments rest on."""
    cases = {
        "Llama 8B\nH100": ("llama-3.1-8b-instruct", "h100", {}),
        "Qwen3 235B\nH200": ("qwen3-235b-a22b-fp8", "h200", {"tp": 8}),
        "DeepSeek V3\nH200": ("deepseek-v3", "h200", {"tp": 8}),
        "gpt-oss 120B\nB200": ("gpt-oss-120b", "b200", {"tp": 2}),
        "Llama 8B\nA100": ("llama-3.1-8b-instruct", "a100-sxm", {}),
    }
    names = {"measured": "measured", "literature": "literature", "vendor_spec": "literature"}
    bars = []
    for label, (model, hardware, widths) in cases.items():
        found = Kernel.build(model=model, hardware=hardware, **widths).provenance()  # type: ignore[arg-type]
        count = dict.fromkeys(("measured", "literature", "assumed number or law", "engine default or caveat"), 0)
        for entry in found["coefficients"]:
            count[names.get(entry["method"], "assumed number or law")] += 1
        count["engine default or caveat"] = len(found["assumptions"])
        bars.append((label, count))
    return plots.stacked(bars, ylabel="entries", title="what a deployment's numbers rest on", form="{:.0f}", dark=dark)


FIGURES: dict[str, Callable[[bool], Any]] = {
    each.__name__: each for each in (step, context, memory, parallelism, concurrency, evidence)
}


def draw(folder: Path, names: list[str], *, png: bool = False) -> list[Path]:
    """Draw the named pictures into `folder`, light and dark; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    suffixes = (".svg", ".png") if png else (".svg",)
    written = []
    for name in names:
        for dark in (False, True):
            figure = FIGURES[name](dark)
            stem = f"{name}-dark" if dark else name
            written += [plots.save(figure, folder / f"{stem}{suffix}") for suffix in suffixes]
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"pictures to draw: {', '.join(FIGURES)}; default: all")
    parser.add_argument("--png", action="store_true", help="also write PNGs")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    for path in draw(options.folder, options.names or list(FIGURES), png=options.png):
        print(path)
