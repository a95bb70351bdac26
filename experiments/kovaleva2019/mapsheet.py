"""A sheet of attention maps without names, to print and to label by eye, and its key."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from random import Random

from matplotlib.image import imsave

from attnlib.data.corpora import load_corpus
from attnlib.errors import BadValue
from attnlib.files import check_out, write_whole
from attnlib.models import load_encoder
from bookkit.templates import filled
from experiments.kovaleva2019.patterns import PatternExample, example_maps, labelled_maps


def write_sheet(
    out: Path, *, model: str = "e5-small", each: int = 4, seed: int = 0, device: str = "auto"
) -> list[Path]:
    """Draw labelled maps of a model, some of every pattern: a page for the class, and the key.

    out   the page to print; the key is written next to it
    each  how many maps of every pattern, where so many were labelled
    seed  decides which maps are drawn, and their order
    """
    key = out.with_name(f"{out.stem}-key{out.suffix}")
    for path in (out, key):
        check_out(path)
    if each < 1:
        raise BadValue(f"{each} maps of every pattern were asked for; expected 1 or more.")
    rows = [row for row in labelled_maps() if row.task == ""]
    if model not in {row.model for row in rows}:
        known = ", ".join(sorted({row.model for row in rows}))
        raise BadValue(f"no map of '{model}' was labelled; expected one of these models: {known}.")
    encoder = load_encoder(model, device=device)
    names = dict.fromkeys(row.corpus for row in rows if row.model == model)
    corpora = {name: load_corpus(name, tokenizer=encoder.tokenizer) for name in names}
    maps = example_maps(encoder, corpora, each, seed=seed)
    Random(seed).shuffle(maps)
    page, shown = Path(__file__).with_suffix(".html"), [(one, _png(one)) for one in maps]
    return [
        write_whole(path, filled(page, maps=shown, model=model, is_key=path == key))
        for path in (out, key)
    ]


def _png(one: PatternExample) -> str:
    file = io.BytesIO()
    imsave(file, one.picture, cmap="Greys", vmin=0, vmax=1, format="png")
    return base64.b64encode(file.getvalue()).decode()
