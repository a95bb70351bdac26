"""What the head viewer knows of a text: its tokens, every head's map packed small, its metrics."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlib.attention.encode import Encoded, batches, check_max_length, encode, tokenized
from attnlib.attention.tap import all_maps
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Example, Segment
from attnlib.errors import BadValue, TooLong, check_choice
from attnlib.measuring.stream import chosen_metrics, measure
from attnlib.metrics.registry import Metric
from attnlib.models import Encoder

POWER = 0.75
r"""A weight :math:`a` is kept as :math:`\mathrm{round}(L a^{3/4})`, one of :math:`L + 1` levels.

Most weights of a long text are tiny, and each level spent on them costs bytes; the rare large ones
are what a reader looks at, and fine levels up there cost next to nothing. At the same size a square
root is four times less exact near 1, where the numbers are read.
"""

LEVELS = (255, 127, 63, 31)
"""The finest that is light enough is taken."""

HEAVIEST = 1_400_000
"""Characters that the maps of 144 heads may take, up to 128 pieces; longer texts may take more."""

TELLING = ("mass_to_previous", "mass_to_next")
"""A head with much of these is opened first: its lines are understood at once."""

ON_LONG = ("error", "truncate")

Text = str | tuple[str, str] | Example
"""A text, a pair of texts that are read together, or an example of a corpus."""


@dataclass(frozen=True, eq=False)
class Reading:
    """How one model reads one text.

    tokens   the pieces, as a person reads them
    unit     of each piece, the unit it belongs to: its word, or itself if it is a special token
    units    the words and special tokens, in the order of the text
    values   a (layer, head) array for each metric
    levels   how finely the weights are kept
    sheets   the levels of all maps of a layer (head, key, query), deflated, in base64
    special  where the special tokens, such as [CLS] and [SEP], are among the pieces
    """

    model: str
    tokens: tuple[str, ...]
    unit: tuple[int, ...]
    units: tuple[str, ...]
    values: dict[str, np.ndarray]
    levels: int
    sheets: tuple[str, ...]
    n_heads: int
    special: tuple[int, ...] = ()

    @property
    def n_layers(self) -> int:
        return len(self.sheets)


def largest_error(levels: int) -> float:
    """No kept weight is further from the true one: half a level, where levels are widest apart."""
    return 2 / (3 * levels)


def head_metrics(keys: Sequence[str | Metric]) -> list[Metric]:
    """Metrics by name, each of which must be one number per head."""
    found = chosen_metrics(keys)
    for metric in found:
        if metric.axes != ("head",) or metric.scope != "layer":
            raise BadValue(
                f"metric '{metric.key}' has the axes {', '.join(metric.axes)}; expected one number "
                "per head to colour the grid. Choose another of `attnlib metrics`."
            )
    return found


def as_example(text: Text, place: int) -> Example:
    """A text of the user's own as an example; nothing to read is refused, by its place."""
    if isinstance(text, str):
        text = (text, "")
    if isinstance(text, tuple):
        first, second = text
        if not first.strip():
            raise BadValue(f"text {place + 1} is empty; expected at least one word.")
        return Segment(f"text {place + 1}", first, second if second.strip() else None)
    return text


def paired(texts: Sequence[str], pairs: Sequence[str]) -> list[Text]:
    """Texts with their second texts, in order; an empty one means none."""
    if pairs and len(pairs) != len(texts):
        raise BadValue(
            f"{len(texts)} texts and {len(pairs)} pairs were given; expected a pair for each text. "
            'Write --pair "" for a text without.'
        )
    return [*zip(texts, pairs, strict=True)] if pairs else [*texts]


def title_of(example: Example) -> str:
    """The text itself, as one line."""
    parts = (part.split() if isinstance(part, str) else part for part in example.parts)
    return " ‖ ".join(" ".join(words) for words in parts)


def read(
    encoder: Encoder,
    example: Example,
    metrics: Sequence[Metric],
    *,
    max_length: int | None = None,
    on_long: str = "error",
    place: int = 0,
) -> Reading:
    """Run a model over one text and keep what a viewer shows of it.

    max_length  by default all that the model has positions for
    on_long     a longer text is refused, or cut
    """
    check_choice("on-long", on_long, ON_LONG)
    limit = encoder.max_length if max_length is None else max_length
    check_max_length(limit, encoder)
    pieces = _pieces(encoder, example, limit, on_long, place)
    corpus = Corpus("text", "segment", (example,), {}, "given", "")
    found = measure(encoder, corpus, metrics, max_length=limit, on_long=on_long)
    values = {metric.key: found.values(metric.key)[0] for metric in metrics}
    (batch,) = batches([pieces], encoder)
    levels, sheets = packed(all_maps(encoder, batch).cpu().numpy())
    tokens, unit, units = _names(encoder.tokenizer, pieces)
    return Reading(
        model=encoder.name,
        tokens=tokens,
        unit=unit,
        units=units,
        values=values,
        levels=levels,
        sheets=sheets,
        n_heads=encoder.n_heads,
        special=tuple(place for place, word in enumerate(pieces.word) if word < 0),
    )


def _pieces(encoder: Encoder, example: Example, limit: int, on_long: str, place: int) -> Encoded:
    (whole,) = tokenized([example], encoder)
    if len(whole) > limit and on_long == "error":
        more = f" ({encoder.name} reads up to {encoder.max_length})"
        raise TooLong(
            f"text {place + 1} has {len(whole)} pieces, the limit is {limit}{more}. Use a larger "
            "--max-length, --on-long truncate, or a shorter text."
        )
    found = list(encode([example], encoder, max_length=limit, on_long=on_long))
    if not found:
        raise BadValue(f"text {place + 1} has nothing the model can read; expected a word.")
    return found[0]


def packed(maps: np.ndarray) -> tuple[int, tuple[str, ...]]:
    """Levels and sheets of maps (layer, head, query, key): as fine as the page can carry."""
    n_layers, n_heads, n, _ = maps.shape
    budget = HEAVIEST * max(1.0, n_layers * n_heads / 144) * max(1.0, n / 128) ** 1.5
    for levels in LEVELS:
        sheets = tuple(_sheet(layer, levels) for layer in maps)
        if sum(map(len, sheets)) <= budget:
            break
    return levels, sheets


def _sheet(layer: np.ndarray, levels: int) -> str:
    steps = np.rint(levels * np.clip(layer, 0, 1) ** POWER).astype(np.uint8)
    # Key by key: what a head sends to one token is similar for all queries, and packs well.
    return base64.b64encode(zlib.compress(steps.swapaxes(-1, -2).tobytes(), 6)).decode()


def _names(tokenizer: Any, pieces: Encoded) -> tuple[tuple[str, ...], tuple[int, ...], tuple]:
    """Names of the pieces, the unit of each, and the names of the units.

    Unlike `attnlib.attention.words`, which takes all [SEP] together, each special token is its
    own unit, so that the two halves of a pair can be told apart.
    """
    raw = tokenizer.convert_ids_to_tokens(pieces.ids)
    unit: list[int] = []
    members: list[list[str]] = []
    for place, (token, word) in enumerate(zip(raw, pieces.word, strict=True)):
        if word < 0 or place == 0 or word != pieces.word[place - 1]:
            members.append([])
        members[-1].append(token)
        unit.append(len(members) - 1)
    return (
        tuple(_readable(tokenizer, [token]) for token in raw),
        tuple(unit),
        tuple(_readable(tokenizer, tokens) for tokens in members),
    )


def _readable(tokenizer: Any, tokens: list[str]) -> str:
    """One piece, or the pieces of a word, as they look in a text."""
    if len(tokens) == 1 and tokens[0].startswith("##"):
        return tokens[0]
    return str(tokenizer.convert_tokens_to_string(tokens)).strip() or "".join(tokens)


def opened_head(reading: Reading) -> int:
    """The head a viewer opens first, numbered over all layers: the one that says most.

    What ends on special tokens, or is spread out, says little at first sight.
    """
    telling = [reading.values[key].ravel() for key in TELLING if key in reading.values]
    grids = telling or [values.ravel() for values in reading.values.values()]
    return int(np.nan_to_num(np.stack(grids), nan=-math.inf).max(axis=0).argmax())
