"""Turns notebooks into a judged, published book. What a student calls is `check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bookkit.teach.exercises import check

__all__ = ["check"]


def __getattr__(name: str) -> Any:
    """`check` is loaded when it is called: the commands of the book start without it."""
    if name != "check":
        raise AttributeError(f"module 'bookkit' has no attribute '{name}'")
    from bookkit.teach.exercises import check

    return check
