"""What the chapter found, as sentences: its claims, sorted by the verdicts of the run."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from bookkit.claims import Judgement

HEADINGS = {
    "holds": "What holds",
    "undecided": "What is undecided",
    "fails": "What does not hold, though we expected it",
    "undefined": "What cannot be judged here",
    "to be run": "What was not measured",
}
SAID = {
    "holds": "What people say, and may go on saying",
    "undecided": "What people say, and should say with care",
    "fails": "What people say, and should stop repeating",
}
"""Headings of claims that are sayings; we did not expect them to hold."""


class PlainWords(dict[str, list[str]]):
    """Sentences, as HTML, under headings; a notebook and the book show them."""

    def _repr_html_(self) -> str:
        parts = []
        for heading, sentences in self.items():
            items = "".join(f"<li>{sentence}</li>" for sentence in sentences)
            parts.append(f"<p><strong>{html.escape(heading)}</strong></p><ul>{items}</ul>")
        return f'<div class="attn-plain">{"".join(parts)}</div>'


def plain_words(judged: Sequence[Judgement]) -> PlainWords:
    """The sentence of every claim, with the number that decided, under its verdict."""
    groups: dict[str, list[str]] = {name: [] for name in (*HEADINGS.values(), *SAID.values())}
    for one in judged:
        said = HEADINGS | SAID if one.claim.id.startswith("saying.") else HEADINGS
        groups[said[one.verdict]].append(_sentence(one))
    return PlainWords({heading: found for heading, found in groups.items() if found})


def anchor(claim: str) -> str:
    """Where in the chapter a claim is measured, by the first part of its name."""
    return f"agreement-{claim.partition('.')[0]}".replace("saying", "sayings")


def _sentence(one: Judgement) -> str:
    """The claim, the number that decided, what was asked of it, and a link to its section."""
    claim = str(one.claim.value.get("claim", one.claim.phenomenon.text))
    text = html.escape(f"{claim[:1].upper()}{claim[1:]}")
    link = f'<a href="#{anchor(one.claim.id)}">{html.escape(one.claim.id)}</a>'
    if one.seen is None or math.isnan(one.seen.value):
        return f"{text} ({link})."
    own = one.claim.measure == one.claim.phenomenon.measure
    number = _number(one.seen.value, one.claim.kind if own else "value")
    asked = html.escape(one.claim.phenomenon.text)
    return f"{text} (<b>{number}</b>; we asked whether {asked}; {link})."


def _number(value: float, kind: str) -> str:
    """A share in percent, a lead with its sign, a count without decimals."""
    shown = {"share": f"{100 * value:.0f} %", "order": f"{value:+.2f}", "exists": f"{value:.0f}"}
    return shown.get(kind, f"{value:.2f}").replace("-", "−")
