"""`catalog.md`: the models, chips, networks and storage devices the package ships."""

from __future__ import annotations

from steppe.catalog import Catalog
from steppe.docgen.markdown import code, page, table
from steppe.documents import Chip, ModelGraph
from steppe.models.parameters import parameters


def catalog() -> str:
    """The page of what the catalog holds."""
    shipped = Catalog()
    models = [(name, shipped.model(name)) for name in shipped.models()]
    chips = [(name, shipped.chip(name)) for name in shipped.chips()]
    fabrics = [(name, shipped.fabric(name)) for name in shipped.fabrics()]
    return page(
        "# Catalog",
        "What the package ships. `steppe catalog list` prints the names, `steppe catalog show NAME` a document with "
        "its sources. Other models are derived from their `config.json` ([add a model](../guides/add-a-model.md)), "
        "other chips are written by hand ([add a chip](../guides/add-a-chip.md)).",
        "## Chips",
        "Dense peaks in TFLOP/s, memory bandwidth in TB/s, memory as the CUDA driver reports it in GiB, link rate in "
        "GB/s per GPU one way.",
        table(
            ("chip", "bf16", "fp8", "nvfp4", "TB/s", "GiB", "link GB/s", "SMs", "a node"),
            [(code(name), *_chip(chip)) for name, chip in chips],
            right=range(1, 9),
        ),
        "## Networks",
        table(
            ("network", "GB/s a GPU, one way", "RDMA"),
            [(code(n), f"{f.inter_node_bw_gbps:g}", "yes" if f.rdma else "no") for n, f in fabrics],
            right=[1],
        ),
        "## Storage devices",
        table(
            ("device", "read MB/s", "write MB/s", "latency us"),
            [
                (code(name), f"{d.read_bandwidth:g}", f"{d.write_bandwidth:g}", f"{d.base_latency:g}")
                for name, d in sorted(shipped.storage().items())
            ],
            right=range(1, 4),
        ),
        "## Models",
        "Parameters are counted from the graph, in billions.",
        table(
            ("model", "parameters", "layers", "hidden", "weights", "attention", "experts"),
            [(code(name), *_model(graph)) for name, graph in models],
            right=range(1, 4),
        ),
        f"{len(models)} models, {len(chips)} chips, {len(fabrics)} networks.",
    )


def _chip(chip: Chip) -> tuple[str, ...]:
    rates = (chip.tflops_peak, chip.tflops_fp8, chip.tflops_nvfp4, chip.bw_peak_tbs, chip.memory_gib)
    sizes = (chip.intra_node_bw_gbps, chip.sm_count, chip.gpus_per_node)
    return tuple("" if value is None else f"{value:g}" for value in (*rates, *sizes))


def _model(graph: ModelGraph) -> tuple[str, ...]:
    nodes = [node for kind in graph.layer_kinds for node in kind.nodes]
    kinds: list[str] = [node.kind for node in nodes if node.op == "Attention" and not node.role]
    kinds += [node.recurrent_kind for node in nodes if node.op == "RecurrentUpdate"]
    experts = next((f"{node.experts}, top {node.top_k}" for node in nodes if node.op == "GroupedGEMM"), "")
    stored = {node.weight_dtype or graph.globals_.weight_dtype for node in nodes if node.op in ("GEMM", "GroupedGEMM")}
    total = parameters(graph.model_dump(by_alias=True, exclude_unset=True)) / 1e9
    return (
        f"{total:,.1f}",
        str(graph.stack.layers),
        f"{graph.globals_.hidden_size:,}",
        ", ".join(sorted(stored)),
        ", ".join(dict.fromkeys(kinds)),
        experts,
    )
