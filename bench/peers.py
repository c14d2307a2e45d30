"""Other estimators on one decode step of Llama 3.1 8B on an H100, batch 64, a new context every call.

python bench/peers.py          a JSON object: microseconds a call, or null where the package is not installed
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def steppe_step() -> Callable[[int], object]:
    """A new batch object and its price, through Python."""
    import steppe

    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")
    scheduled = [1] * 64
    return lambda context: kernel.step_time(steppe.Batch(scheduled, [context] * 64)).no_overlap


def steppe_prepared() -> Callable[[int], object]:
    """The same with batches prepared beforehand."""
    import steppe

    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")
    prepared = [steppe.Batch([1] * 64, [1024 + i] * 64) for i in range(1024)]
    return lambda context: kernel.step_time(prepared[context & 1023]).no_overlap


def servcalc() -> Callable[[int], object]:
    """servcalc: work of a decode step, then its roofline time. Dense models, no layout."""
    from servcalc import work
    from servcalc.calibration import get
    from servcalc.gpus import resolve
    from servcalc.timing import step_time
    from vramcalc.loaders import load_arch

    arch, gpu, calibration = load_arch(LLAMA), resolve("H100 80GB"), get("vllm_bf16")
    weights = work.weight_bytes(arch, 16).stream
    kv = work.kv_bytes_per_token(arch, 16)
    return lambda context: step_time(work.decode_step(arch, 64, 64 * context, kv, weights, False), gpu, calibration, 64)


def ridgepoint() -> Callable[[int], object]:
    """ridgepoint: what fits and the decode rate of one request at a context; it prices no batch."""
    from ridgepoint import fit

    return lambda context: fit("llama-3-8b", "h100-80gb", ctx=context)


PEERS = {
    "steppe": steppe_step,
    "steppe, batch prepared": steppe_prepared,
    "servcalc": servcalc,
    "ridgepoint": ridgepoint,
}


def best_us(call: Callable[[int], object], runs: int = 20, calls: int = 2000) -> float:
    """Best microseconds a call over several runs."""
    contexts = count(1024)
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(calls):
            call(next(contexts) % 8192 + 1)
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


def measure() -> dict[str, float | None]:
    """Microseconds a call of each peer; None where it is not installed."""
    out: dict[str, float | None] = {}
    for name, make in PEERS.items():
        try:
            call = make()
        except ImportError:
            out[name] = None
            continue
        out[name] = round(best_us(call), 3)
    return out


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
