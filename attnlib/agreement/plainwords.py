"""What the chapter found, as sentences: its claims, sorted by the verdicts of the run."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from attnlib.papers import Judgement

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


@dataclass(frozen=True, eq=False)
class PlainWords:
    """Sentences under headings; a notebook and the book show them."""

    groups: dict[str, list[str]]

    def _repr_html_(self) -> str:
        parts = []
        for heading, sentences in self.groups.items():
            items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
            parts.append(f"<p><strong>{html.escape(heading)}</strong></p><ul>{items}</ul>")
        return f'<div class="attn-plain">{"".join(parts)}</div>'


def plain_words(judged: Sequence[Judgement]) -> PlainWords:
    """The sentence of every claim, with the number that decided, under its verdict."""
    groups: dict[str, list[str]] = {}
    for one in sorted(judged, key=lambda one: one.claim.id.startswith(SAYING)):
        said = SAID if one.claim.id.startswith(SAYING) else HEADINGS
        heading = said.get(one.verdict, HEADINGS[one.verdict])
        groups.setdefault(heading, []).append(_sentence(one))
    order = [*HEADINGS.values(), *SAID.values()]
    return PlainWords({heading: groups[heading] for heading in order if heading in groups})


def _sentence(one: Judgement) -> str:
    claim = str(one.claim.value.get("claim", one.claim.phenomenon.text))
    text = f"{claim[:1].upper()}{claim[1:]}"
    if one.phenomenon is None or math.isnan(one.phenomenon.value):
        return f"{text}."
    number = f"{one.phenomenon.value:.2f}".replace("-", "−")
    return f"{text} ({number}; the mark was {one.claim.phenomenon.text})."
