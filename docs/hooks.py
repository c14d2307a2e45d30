"""What the site's build adds to the pages as they are written.

* Links to files outside docs/ (sources, licence) work in a checkout and on a code host, but lead nowhere on the site:
  there they become plain text.
* The JSON Schema of every document is written to schemas/<kind>.json.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>\.\.?/[^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave docs/ for an existing file by their text."""
    folder = (DOCS / page.file.src_uri).parent

    def plain(link: re.Match[str]) -> str:
        target = (folder / link["target"]).resolve()
        outside = not target.is_relative_to(DOCS)
        return link["text"] if outside and target.exists() else link[0]

    return LINK.sub(plain, markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the schemas beside the pages."""
    from steppe.documents.schema import SCHEMA_KINDS, json_schema

    folder = Path(config["site_dir"]) / "schemas"
    folder.mkdir(parents=True, exist_ok=True)
    for kind in SCHEMA_KINDS:
        (folder / f"{kind}.json").write_text(json.dumps(json_schema(kind), indent=2) + "\n", encoding="utf-8")
