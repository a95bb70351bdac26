"""A sheet of attention maps without names, to print and to label by eye, and its key."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from random import Random

from matplotlib.image import imsave

from attnlib.data.corpora import load_corpus
from attnlib.errors import BadValue
from attnlib.files import check_out, write_whole
from attnlib.models import load_encoder
from experiments.kovaleva2019.patternfigures import PatternExample
from experiments.kovaleva2019.portraits import example_maps
from experiments.shared.patterns import PATTERNS, labelled_maps

LOOKS = {
    "vertical": "columns: all tokens look at the same few",
    "diagonal": "a line: every token looks at itself or at a neighbour",
    "vertical+diagonal": "both, and neither is faint",
    "block": "squares: every text looks at itself",
    "heterogeneous": "none of these",
}
"""What each pattern looks like (Kovaleva 2019, Sec. 4.1), in words for somebody with a pencil."""

STYLE = """
@page { size: A4; margin: 14mm }
body { font: 11pt/1.4 system-ui, sans-serif; max-width: 182mm; margin: 6mm auto; color: #000;
  background: #fff; padding: 0 4mm }
h1 { font-size: 16pt; margin: 0 0 3mm } h1 small { float: right; font: inherit; font-size: 11pt }
section + section { break-before: page; margin-top: 14mm }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 4mm; margin: 3mm 0 5mm }
dt { font-weight: 600 } dd { margin: 0 }
.maps { display: grid; grid-template-columns: repeat(5, 1fr); gap: 4mm; padding: 0; margin: 0;
  list-style: none }
.maps li { break-inside: avoid; border-bottom: .3mm solid #000; padding-bottom: 7mm }
.maps img { display: block; width: 100%; border: .2mm solid #999; image-rendering: pixelated }
table { border-collapse: collapse } td, th { border: .2mm solid #777; padding: 1mm 2.5mm }
.tally { width: 100%; table-layout: fixed; font-size: 9.5pt } .tally td { height: 11mm }
th { text-align: left; font-weight: 600 }
@media print { section + section { margin-top: 0 } }
@media (max-width: 640px) { .maps { grid-template-columns: repeat(2, 1fr) }
  .tally { font-size: 6.5pt } .tally th { padding: .5mm } }
"""


def write_sheet(
    out: Path, *, model: str = "e5-small", each: int = 4, seed: int = 0, device: str = "auto"
) -> list[Path]:
    """Draw labelled maps of a model, some of every pattern: a page for the class, and the key.

    out   the page to print; the key is written beside it
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
    pages = {out: _to_label(maps) + _tally(), key: _key(maps, model)}
    return [write_whole(path, _page(body)) for path, body in pages.items()]


def _page(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Attention maps to label</title>'
        f"<style>{STYLE}</style><body>{body}</body></html>\n"
    )


def _to_label(maps: Sequence[PatternExample]) -> str:
    words = "".join(f"<dt>{name}</dt><dd>{LOOKS[name]}</dd>" for name in PATTERNS)
    cells = "".join(
        f'<li>{number}<img alt="map {number}" src="data:image/png;base64,{_png(one)}"></li>'
        for number, one in enumerate(maps, 1)
    )
    return (
        f"<section><h1>{len(maps)} attention maps <small>Name: ____________________</small></h1>"
        "<p>Rows look at columns; the darker, the more. Ten seconds for each map, one word on its "
        f"line, no talking. First ask what there is <em>besides</em> faint columns.</p>"
        f'<dl>{words}</dl><ol class="maps">{cells}</ol></section>'
    )


def _png(one: PatternExample) -> str:
    file = io.BytesIO()
    imsave(file, one.picture, cmap="Greys", vmin=0, vmax=1, format="png")
    return base64.b64encode(file.getvalue()).decode()


def _tally() -> str:
    """An empty table of two people's words, from which kappa is computed by hand."""
    names = [name.replace("+", "+<wbr>").replace("geneous", "&shy;geneous") for name in PATTERNS]
    header = "".join(f'<th scope="col">{name}</th>' for name in names)
    blank = "<td></td>" * (len(PATTERNS) + 1)
    rows = "".join(f'<tr><th scope="row">{name}</th>{blank}</tr>' for name in (*names, "all"))
    return (
        "<section><h1>You and a neighbour</h1><p>A stroke for every map: your word chooses the "
        "row, your neighbour's the column. The strokes on the diagonal, divided by all, are the "
        "agreement p<sub>o</sub>; the sums of rows and columns tell how much of it is luck, "
        "p<sub>e</sub>. Kappa is (p<sub>o</sub> − p<sub>e</sub>) / (1 − p<sub>e</sub>).</p>"
        f'<table class="tally"><tr><td></td>{header}<th scope="col">all</th></tr>{rows}</table>'
        "<p>Which maps would you like to talk about, and what would each of you have to see to be "
        "convinced?</p></section>"
    )


def _key(maps: Sequence[PatternExample], model: str) -> str:
    rows = "".join(
        f"<tr><td>{number}</td><td>{one.pattern}</td><td>{html.escape(one.name)}</td></tr>"
        for number, one in enumerate(maps, 1)
    )
    return (
        "<section><h1>Key</h1><p>What one person called the maps by the same "
        "words. It is no more right than your class is: on maps seen twice that person disagrees "
        f"with themselves, too. All maps are of {html.escape(model)}, not fine-tuned.</p>"
        '<table><tr><th scope="col">map</th><th scope="col">pattern</th><th scope="col">text and '
        f"head</th></tr>{rows}</table></section>"
    )
