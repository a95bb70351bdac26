"""Turns notebooks into a judged, published book. What a student calls is `check`."""

from bookkit.teach.exercises import check

__all__ = ["check"]
