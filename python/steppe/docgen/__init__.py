"""Generates `docs/reference/divergences.md` from the notes that stand beside the code they concern.

A note is a comment block or a docstring paragraph that holds one of three phrases (`notes.KINDS`).
`python -m steppe.docgen` writes the page, `--check` fails when the committed page is not what it would write.
"""

from steppe.docgen.notes import KINDS, DocgenError, Note, scan
from steppe.docgen.page import Summaries, load_summaries, render

__all__ = ["KINDS", "DocgenError", "Note", "Summaries", "load_summaries", "render", "scan"]
