"""Sizing memory: KV caches, weights and buffers of a rank, and the requests that fit beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steppe.memory.capacity import DoesNotFit, KvCapacity
    from steppe.memory.fixed import FixedBytes
    from steppe.memory.memory import Memory

__all__ = ["DoesNotFit", "FixedBytes", "KvCapacity", "Memory"]

_HOMES = {"DoesNotFit": "capacity", "KvCapacity": "capacity", "FixedBytes": "fixed", "Memory": "memory"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that the package loads without the compiled core."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"steppe.memory.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
