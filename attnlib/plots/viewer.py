"""The head viewer: every head of a model on a text, in one fragment of HTML that needs nothing."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from attnlib.attention.interventions import check_heads, head_named
from attnlib.errors import AttnlibError, BadValue
from attnlib.files import check_out, write_whole
from attnlib.measuring.reading import (
    POWER,
    Reading,
    Text,
    as_example,
    head_metrics,
    largest_error,
    opened_head,
    read,
    title_of,
)
from attnlib.metrics.registry import Metric
from attnlib.models import Encoder, load_encoder
from attnlib.plots.labels import is_share, label
from attnlib.plots.style import LOOKS, meaning
from attnlib.progress import counting

METRICS = (
    *("mass_to_previous", "mass_to_next", "mass_to_self", "mass_to_cls", "mass_to_sep"),
    *("mass_to_punctuation", "mass_to_same_word", "entropy"),
)
"""What the heads can be coloured by unless other metrics are named."""

TEXT = "The keeper of the lighthouse wrote a letter to her brother, who lived far inland."
"""What a live view shows before anybody has typed."""

ROLES = {
    "mass_to_previous": ("previous", "‹"),
    "mass_to_next": ("next", "›"),
    "mass_to_self": ("self", "○"),
    "mass_to_cls": ("cls", "⊢"),
    "mass_to_sep": ("special", "⊣"),
    "mass_to_punctuation": ("punctuation", "·"),
    "mass_to_other_segment": ("block", "⇄"),
}
"""Shares that can be a head's main one, with their meaning in the palette and their sign."""


@dataclass(frozen=True, eq=False)
class View:
    """Heads of one or two models on some texts; a notebook and the book show it, and it opens.

    titles    the texts
    readings  of each text, how each model reads it
    metrics   what the heads can be coloured by
    head      layer and head, from 0, that are opened first; None opens the most telling
    """

    titles: tuple[str, ...]
    readings: tuple[tuple[Reading, ...], ...] = field(repr=False)
    metrics: tuple[Metric, ...] = field(repr=False)
    head: tuple[int, int] | None = None

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        target = Path(path)
        check_out(target)
        return write_whole(target, self.page())

    def page(self) -> str:
        """A whole document: it opens from disk, without a network."""
        names = html.escape(" and ".join(self._model_names()))
        return PAGE.format(title=f"Attention heads of {names}", viewer=self._repr_html_())

    def _repr_html_(self) -> str:
        stored = html.escape(json.dumps(self._data(), ensure_ascii=False, separators=(",", ":")))
        sheets = "".join(
            f'<i hidden data-maps="{sheet}"></i>'
            for text in self.readings
            for reading in text
            for sheet in reading.sheets
        )
        # MathJax must leave tokens such as $ alone, and JupyterLab its shortcuts.
        return (
            '<figure class="attn-figure attn-view tex2jax_ignore mathjax_ignore" '
            f'data-lm-suppress-shortcuts="true" data-view="{stored}">'
            f"<style>{asset('viewer.css')}</style>{sheets}"
            f'<div class="root"><p>{SLEEPING}</p></div>'
            f"<figcaption>{html.escape(self._spoken())}</figcaption>"
            f"<script>{script()}</script></figure>"
        )

    def _model_names(self) -> list[str]:
        return [shown_name(reading.model) for reading in self.readings[0]]

    def _spoken(self) -> str:
        counts = [reading.n_layers * reading.n_heads for reading in self.readings[0]]
        named = zip(counts, self._model_names(), strict=True)
        whose = " and the ".join(f"{n} attention heads of {name}" for n, name in named)
        levels = min(reading.levels for text in self.readings for reading in text)
        error = math.ceil(1e4 * largest_error(levels)) / 1e4
        return (
            f"The {whose}, layers downwards, heads from left to right. "
            "Choose a head to see which token attends (left, or row) to which (right, or column); "
            f"point at a token for its numbers. Weights are within {error:.4f} of the model's own."
        )

    def _data(self) -> dict[str, Any]:
        return {
            "power": POWER,
            "models": [
                {"name": name, "layers": r.n_layers, "heads": r.n_heads, "open": self._opened(r)}
                for r, name in zip(self.readings[0], self._model_names(), strict=True)
            ],
            "metrics": [_told(metric) for metric in self.metrics],
            "samples": [
                {"title": title, "readings": [self._stored(reading) for reading in readings]}
                for title, readings in zip(self.titles, self.readings, strict=True)
            ],
        }

    def _opened(self, reading: Reading) -> int:
        """The head to open, numbered over all layers; in a smaller model the last of them."""
        if self.head is None:
            return opened_head(reading)
        layer, head = self.head
        last = reading.n_heads - 1
        return min(layer, reading.n_layers - 1) * reading.n_heads + min(head, last)

    def _stored(self, reading: Reading) -> dict[str, Any]:
        grids = [reading.values[metric.key].ravel().tolist() for metric in self.metrics]
        return {
            "pieces": reading.tokens,
            "words": reading.units,
            "unit": reading.unit,
            "special": reading.special,
            "levels": reading.levels,
            "values": [[None if math.isnan(v) else round(v, 5) for v in grid] for grid in grids],
        }


def view(
    model: str | Path | Encoder,
    texts: Text | Sequence[Text],
    *,
    beside: str | Path | Encoder | None = None,
    metrics: Sequence[str | Metric] = METRICS,
    head: str | None = None,
    max_length: int | None = None,
    on_long: str = "error",
    device: str = "auto",
) -> View:
    """All heads of a model on a text, or on several among which the reader of the page chooses.

    texts    a text, a (text, second text), an example of a corpus, or a list of such
    beside   a second model, to compare heads with
    metrics  what the grid of heads can be coloured by; see `attnlib metrics`
    head     which one is opened first, such as "3-3"

    >>> from attnlib import random_encoder, view
    >>> page = view(random_encoder(), ("A cat sat.", "It slept."))
    >>> page.titles
    ('A cat sat. ‖ It slept.',)

    A notebook shows it; `page.save("view.html")` writes a page that needs no network.
    """
    chosen = head_metrics(metrics)
    several = isinstance(texts, Sequence) and not isinstance(texts, str | tuple)
    given: list[Text] = list(texts) if several else [texts]  # type: ignore[list-item, arg-type]
    if not given:
        raise BadValue("there is no text; expected at least one.")
    examples = [as_example(text, place) for place, text in enumerate(given)]
    wanted = None if head is None else head_named(head.strip())
    encoders = _encoders(model, beside, device)
    if wanted is not None:
        check_heads(encoders[0], [wanted])
    found = []
    with counting() as tick:
        for place, example in enumerate(examples):
            how: Any = {"max_length": max_length, "on_long": on_long, "place": place}
            found.append(tuple(read(one, example, chosen, **how) for one in encoders))
            tick(place + 1, len(examples))
    titles = tuple(title_of(example) for example in examples)
    return View(titles, tuple(found), tuple(chosen), wanted)


def _encoders(
    model: str | Path | Encoder, beside: str | Path | Encoder | None, device: str
) -> list[Encoder]:
    return [
        one if isinstance(one, Encoder) else load_encoder(one, device=device)
        for one in (model, beside)
        if one is not None
    ]


def live(
    model: str | Path | Encoder = "e5-small",
    text: str = TEXT,
    pair: str = "",
    *,
    beside: str | Path | Encoder | None = None,
    metrics: Sequence[str | Metric] = METRICS,
    max_length: int | None = None,
    device: str = "auto",
) -> Any:
    """Two text boxes, the second for a pair, above the viewer; Enter or leaving a box reads anew.

    What is shown is the fragment that a saved page holds. What cannot be read is said in a
    sentence, in the place of the viewer.

    >>> from attnlib import live, random_encoder
    >>> boxes = live(random_encoder(), "A cat sat.")
    >>> boxes.children[0].value
    'A cat sat.'
    """
    widgets = _widgets()
    first_model, *second = _encoders(model, beside, device)
    wide = widgets.Layout(width="100%", max_width="46rem")
    boxes = [
        widgets.Text(value=value, placeholder=hint, continuous_update=False, layout=wide)
        for value, hint in ((text, "a sentence"), (pair, "a second sentence, if you like"))
    ]
    shown = widgets.Output()

    def show(change: Any = None) -> None:
        try:
            page = view(
                first_model,
                tuple(box.value for box in boxes),
                beside=second[0] if second else None,
                metrics=metrics,
                max_length=max_length,
            )
        except AttnlibError as error:
            shown.outputs = (_output(**{"text/plain": str(error)}),)
        else:
            told = f"Heads of {first_model.name}"
            fragment = page._repr_html_()
            shown.outputs = (_output(**{"text/html": fragment, "text/plain": told}),)

    for box in boxes:
        box.observe(show, names="value")
    show()
    return widgets.VBox([*boxes, shown])


def _output(**data: str) -> dict[str, Any]:
    """What a cell would show, as the widget keeps it: no race between clearing and showing."""
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _widgets() -> Any:
    try:
        import ipywidgets
    except ImportError:
        raise AttnlibError(
            "a live view needs ipywidgets, which is not installed. Run `pip install ipywidgets`, "
            "or use attnlib.view()."
        ) from None
    return ipywidgets


def shown_name(model: str) -> str:
    """A model's name as the page shows it: of a folder only the last part."""
    return Path(model).name if Path(model).is_absolute() else model


def _told(metric: Metric) -> dict[str, Any]:
    """What the page knows of a metric."""
    palette, sign = ROLES.get(metric.key, (meaning(metric.key), ""))
    name, bare = label(metric.key), metric.key.removeprefix("mass_to_")
    return {
        "name": name,
        "short": re.sub(r"^attention (to )?", "", name),
        "chip": bare.replace("_", " ").replace("cls", "[CLS]").replace("sep", "[SEP]"),
        "what": metric.what,
        "unit": metric.unit,
        "share": is_share(metric.key),
        "role": metric.key in ROLES,
        "sign": sign,
        "colour": LOOKS[palette].colour,
    }


@cache
def asset(name: str | Path) -> str:
    """A file of the viewer by its name, or one of a page that is built on it by its path."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def script(*names: str | Path) -> str:
    """The whole script, in a function of its own: the page's names stay as they were."""
    code = "\n".join(asset(name) for name in names or ("viewdraw.js", "viewer.js"))
    return f"(() => {{\n'use strict';\n{code}}})();"


SLEEPING = "The heads appear here once the page may run its script; in Jupyter, trust the notebook."

PAGE = asset("viewer.html")
"""A whole document, up to its title and what it shows."""
