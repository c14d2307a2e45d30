"""Generates the reference pages of the documentation from the package itself.

`docs/reference/divergences.md` is made from the notes that stand beside the code they concern; the other pages
(`reference.pages`) from the resolver's tables, the shipped coefficient sets, the catalog, the schemas and the command.

A note is a comment block or a docstring paragraph that holds one of three phrases (`notes.KINDS`).
`python -m steppe.docgen` writes the pages, `--check` fails when a committed page is not what it would write.
"""

from steppe.docgen.notes import KINDS, DocgenError, Note, scan
from steppe.docgen.page import Summaries, load_summaries, render

__all__ = ["KINDS", "DocgenError", "Note", "Summaries", "load_summaries", "render", "scan"]
