"""What the chapter found, as sentences: its claims, sorted by the verdicts of the run."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from bookkit.claims import Judgement

HEADINGS = {
    "reproduced": "What holds",
    "partly": "What holds in part",
    "not reproduced": "What does not hold, though we expected it",
    "not comparable": "What cannot be judged here",
    "absent": "What was not measured",
}
SAYING = "saying."
"""Claims of this name are what people say; we did not expect them to hold."""
SAID = {
    "reproduced": "What people say, and may go on saying",
    "partly": "What people say, and should say with care",
    "not reproduced": "What people say, and should stop repeating",
}

ANCHORS = {
    section: f"agreement-{section}"
    for section in ("words", "questions", "disabling", "foretelling", "importance", "stability")
} | {"saying": "agreement-sayings"}
"""Where in the chapter a claim is measured, by the first part of its name."""


@dataclass(frozen=True, eq=False)
class PlainWords:
    """Sentences under headings; a notebook and the book show them."""

    groups: dict[str, list[str]]
    """Heading -> sentences, as HTML."""

    def _repr_html_(self) -> str:
        parts = []
        for heading, sentences in self.groups.items():
            items = "".join(f"<li>{sentence}</li>" for sentence in sentences)
            parts.append(f"<p><strong>{html.escape(heading)}</strong></p><ul>{items}</ul>")
        return f'<div class="attn-plain">{"".join(parts)}</div>'


def plain_words(judged: Sequence[Judgement]) -> PlainWords:
    """The sentence of every claim, with the number that decided, under its verdict."""
    groups: dict[str, list[str]] = {}
    for one in judged:
        said = SAID if one.claim.id.startswith(SAYING) else HEADINGS
        heading = said.get(one.verdict, HEADINGS[one.verdict])
        groups.setdefault(heading, []).append(_sentence(one))
    order = [*HEADINGS.values(), *SAID.values()]
    return PlainWords({heading: groups[heading] for heading in order if heading in groups})


def _sentence(one: Judgement) -> str:
    """The claim, the number that decided with its mark, and a link to where it was measured."""
    claim = str(one.claim.value.get("claim", one.claim.phenomenon.text))
    text = html.escape(f"{claim[:1].upper()}{claim[1:]}")
    section, _, _ = one.claim.id.partition(".")
    link = f'<a href="#{ANCHORS[section]}">{html.escape(one.claim.id)}</a>'
    if one.phenomenon is None or math.isnan(one.phenomenon.value):
        return f"{text} ({link})."
    number = _number(one.phenomenon.value, one.claim.kind)
    mark = html.escape(one.claim.phenomenon.text)
    return f"{text} (<b>{number}</b>; the mark was {mark}; {link})."


def _number(value: float, kind: str) -> str:
    """A share in percent, a lead with its sign, a count without decimals."""
    shown = {"share": f"{100 * value:.0f} %", "order": f"{value:+.2f}", "exists": f"{value:.0f}"}
    return shown.get(kind, f"{value:.2f}").replace("-", "−")
