"""What vLLM 0.31.0 does, one subject a module; each fact carries the lines it was read from.

Another release is another package beside this one. Paths (`vllm/<path>:<lines>`) are those of the release's Python
tree; nothing here depends on a deployment: the resolver applies the facts, this package only states them.
"""

from __future__ import annotations

VERSION = "0.31.0"
COMMIT = "db9527a46873454610df6dbedf79a36d6bf1a7f6"

__all__ = ["COMMIT", "VERSION"]
