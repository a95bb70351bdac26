"""Accessibility checks by axe-core, fetched like the pages' own scripts and run in the browser."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from bookkit.pages.vendor import Script, vendor
from tests.chromium import Page

AXE = Script(
    package="axe-core@4.10.3",
    sha256="0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292",
    prefix="package/",
    keep=("axe.min.js",),
    into="",
)
CACHE = Path(__file__).parents[1] / "_build" / "cache" / "npm"
RULES = (
    *("color-contrast", "image-alt", "svg-img-alt", "role-img-alt", "button-name", "link-name"),
    *("label", "aria-valid-attr", "aria-valid-attr-value", "aria-roles", "aria-required-children"),
    *("document-title", "html-has-lang", "heading-order", "list", "td-headers-attr"),
    *("scope-attr-valid", "frame-title", "aria-hidden-focus", "nested-interactive"),
)


@cache
def axe_source() -> str | None:
    """The script, or None where it cannot be fetched."""
    with tempfile.TemporaryDirectory() as folder:
        if not vendor(Path(folder), CACHE, [AXE]):
            return None
        return (Path(folder) / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """A sentence for each thing in the open page that someone could not see, hear or press."""
    page.evaluate(f"{axe_source()}; null")
    within = page.evaluate("['article', 'main', 'body'].find(t => document.querySelector(t))")
    options = {"runOnly": {"type": "rule", "values": RULES}, "resultTypes": ["violations"]}
    found: list[dict[str, Any]] = page.evaluate(
        f"axe.run({json.dumps(within)}, {json.dumps(options)}).then(r => r.violations)", 180
    )
    return [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in found
        for node in one["nodes"]
    ]
