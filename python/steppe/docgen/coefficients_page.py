"""`coefficients.md`: what the shipped sets hold, and how well each law holds on rows it was not fitted to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from steppe.catalog import Catalog
from steppe.docgen.markdown import code, page, table
from steppe.documents import Coefficient, CoefficientSet, Law

METHODS = ("measured", "literature", "vendor_spec", "copied", "assumed", "not_charged")
FAMILIES = {
    "gemm": "Dense matrix products, by number format.",
    "moe": "Routed experts, by weight format and experts kernel.",
    "attention_decode": "Decode attention, by kernel, cache format and window.",
    "attention_prefill": "Prefill attention, by kernel, cache format and window.",
    "mla_decode": "Latent attention (MLA), decode.",
    "mla_context": "Latent attention (MLA), prefill.",
    "sparse_decode": "Sparse attention with an indexer or pooled blocks, decode.",
    "sparse_context": "Sparse attention with an indexer or pooled blocks, prefill.",
    "recurrent": "Recurrent mixers (Mamba-2, gated delta net, Kimi delta attention).",
    "collective": "Collectives, by library, operation and ranks.",
    "all_reduce_curve": "The engine's own all-reduce, by release and ranks.",
    "elementwise": "Norms, rotary embedding, activations and other small kernels.",
}


def coefficients() -> str:
    """The page of shipped numbers."""
    catalog = Catalog()
    sets = [catalog.coefficient_set(name) for name in catalog.coefficient_sets()]
    parts = [
        "# Coefficients and laws",
        "The numbers the laws are evaluated with. Each entry states its units, its method, the deployments it holds "
        "for and its source; `steppe catalog show NAME` prints a whole set, and `steppe provenance` the entries one "
        "deployment reads. Three sets a chip are shipped, and used in this order unless a scenario names others; a "
        "later set wins over an earlier one:",
        "* `<chip>-reference`: single numbers of the reference laws (ramps, floors, rates);\n"
        "* `<chip>-engine`: what the engine holds in memory, and host costs;\n"
        "* `<chip>-refined`: fitted laws, which replace the reference law of their family wherever one is in scope.",
        "## Evidence by set",
        _evidence(sets),
        "*Assumed* entries carry a rationale that says how the number was found and what would replace it. "
        "*Not charged* entries are zero on purpose.",
        "## Fitted laws",
        "A cell is the law's error on held-out rows, as a geometric factor (1.06 means a typical error of 6 %); whole "
        "shapes are held out, never random rows. *assumed* means that no measurement covers the variant and a named "
        "neighbour's parameters stand in.",
    ]
    parts += _law_tables(sets)
    parts += ["## Single numbers", *_value_tables(sets)]
    return page(*parts)


def _evidence(sets: Iterable[CoefficientSet]) -> str:
    rows = []
    for each in sets:
        entries: list[Coefficient | Law] = [*each.coefficients, *each.laws]
        counts = Counter(str(entry.method) for entry in entries)
        rows.append((code(each.name), str(len(entries)), *(str(counts[method] or "") for method in METHODS)))
    return table(("set", "entries", *METHODS), rows, right=range(1, 2 + len(METHODS)))


def _law_tables(sets: Iterable[CoefficientSet]) -> list[str]:
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for each in sets:
        chip = each.name.removesuffix("-refined")
        for law in each.laws:
            cells.setdefault(law.law, {}).setdefault(law.key, {})[chip] = _quality(law)
    parts = []
    for family in sorted(cells, key=lambda name: [*FAMILIES, name].index(name)):
        variants = cells[family]
        chips = sorted({chip for by_chip in variants.values() for chip in by_chip})
        rows = [(code(key), *(by_chip.get(chip, "") for chip in chips)) for key, by_chip in sorted(variants.items())]
        parts += [f"### {family}", FAMILIES.get(family, ""), table(("variant", *chips), rows)]
    return [part for part in parts if part]


def _quality(law: Law) -> str:
    if law.method != "measured":
        return str(law.method)
    error = law.fit.get("held_out_error")
    return f"{error:.2f}" if isinstance(error, int | float) else "measured"


def _value_tables(sets: Iterable[CoefficientSet]) -> list[str]:
    """Engine and reference numbers: one row a name, one column a chip."""
    parts = []
    for suffix, title in (("-engine", "Engine and host"), ("-reference", "Reference laws")):
        chosen = [each for each in sets if each.name.endswith(suffix)]
        chips = [each.name.removesuffix(suffix) for each in chosen]
        values: dict[tuple[str, str], dict[str, str]] = {}
        for chip, each in zip(chips, chosen, strict=True):
            for entry in each.coefficients:
                name = entry.name.replace(f"_{chip}", "_<chip>")
                values.setdefault((name, entry.units), {})[chip] = f"{entry.value:.4g}"
        rows = [
            (code(name), units.replace("_", " "), *(by_chip.get(chip, "") for chip in chips))
            for (name, units), by_chip in sorted(values.items())
        ]
        parts += [f"### {title}", table(("name", "units", *chips), rows, right=range(2, 2 + len(chips)))]
    return parts
