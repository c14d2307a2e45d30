"""The pages made from the package's own tables: file under the repository root, and what it should hold."""

from __future__ import annotations

from steppe.docgen.catalog_page import catalog
from steppe.docgen.cli_page import cli
from steppe.docgen.coefficients_page import coefficients
from steppe.docgen.documents_page import documents
from steppe.docgen.rules_pages import assumptions, refusals

FOLDER = "docs/reference"


def pages() -> dict[str, str]:
    """Every generated page and schema, by its path."""
    made = {
        "refusals.md": refusals(),
        "assumptions.md": assumptions(),
        "coefficients.md": coefficients(),
        "catalog.md": catalog(),
        "cli.md": cli(),
        "documents.md": documents(),
    }
    return {f"{FOLDER}/{name}": text for name, text in made.items()}
