"""A rehearsal of an edition: its chapters on models of full shape, but random, and few inputs.

It finds what would stop a night on a GPU after an hour: a parameter of the wrong type, a shape that
a figure cannot draw, a chapter that knows only one number of layers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlib.errors import BadValue
from bookkit.editions import Chapter, Edition, chapter_parameters, load_edition, notebook_path
from bookkit.notebooks import run_notebook
from bookkit.project import project_root

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
SHAPES: Mapping[str, Mapping[str, int]] = {
    "bert-base-uncased": BASE,
    "bert-base-cased": BASE,
    "bert-large-uncased-whole-word-masking": LARGE,
    "bert-large-uncased-whole-word-masking-finetuned-squad": LARGE,
}
"""The models of the papers, as their own configurations have them."""
SPREAD = 0.06
"""Of the random weights. With BERT's own 0.02 every head looks evenly at everything: no head has a
role or a type, and figures that show such heads would have nothing to draw."""


def rehearse(
    edition: str | Path | Edition,
    *,
    shapes: Mapping[str, Mapping[str, int]] = SHAPES,
    folder: Path | None = None,
) -> Path:
    """Run every chapter that has rehearsal settings; the folder of the executed notebooks.

    shapes  model -> numbers of its configuration; its weights are drawn at random
    folder  where models and notebooks go; below _build/ if none is given
    """
    edition = load_edition(edition)
    chapters = [chapter for chapter in edition.chapters if chapter.rehearsal is not None]
    if not chapters:
        raise BadValue(
            f"edition '{edition.name}' has nothing to rehearse; expected `rehearsal:` with "
            "settings under its notebooks, as in editions/paper.yaml."
        )
    place = folder or project_root() / "_build" / edition.name / "rehearsal"
    for number, chapter in enumerate(chapters, start=1):
        given = _settings(edition, chapter, shapes, place / "models")
        count = f"[{number}/{len(chapters)}] {chapter.page}"
        print(f"{count}: rehearsing on {Path(given['model']).name} with random weights")
        began = time.perf_counter()
        source = notebook_path(chapter.notebook)
        run_notebook(source, given, place / "notebooks" / f"{chapter.page}.ipynb")
        print(f"{count}: done in {time.perf_counter() - began:.0f} s")
    print(f"{edition.title}: {len(chapters)} chapters run from end to end")
    return place / "notebooks"


def _settings(
    edition: Edition, chapter: Chapter, shapes: Mapping[str, Mapping[str, int]], models: Path
) -> dict[str, Any]:
    """The chapter's own settings are checked as they are; then few inputs and random models."""
    chapter_parameters(edition, chapter)
    few = {**chapter.parameters, **(chapter.rehearsal or {})}
    given = chapter_parameters(edition, replace(chapter, parameters=few))

    def stand_in(value: Any) -> Any:
        if isinstance(value, str) and value in shapes:
            return str(random_model(value, shapes[value], models / value))
        if isinstance(value, dict):
            return {key: stand_in(one) for key, one in value.items()}
        return value

    return {name: stand_in(value) for name, value in given.items()}


def random_model(name: str, shape: Mapping[str, int], folder: Path) -> Path:
    """A BERT of this shape with random weights, and a head for answers where its name has one."""
    if (folder / "model.safetensors").is_file():
        return folder
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering, BertModel
    from transformers.utils.logging import disable_progress_bar

    from attnlib.data.assets import resolve

    tokenizer = AutoTokenizer.from_pretrained(resolve("bert-uncased-tokenizer"))
    sizes: dict[str, Any] = {**shape, "intermediate_size": 4 * shape["hidden_size"]}
    config = BertConfig(vocab_size=len(tokenizer), initializer_range=SPREAD, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kind = BertForQuestionAnswering if name.endswith("squad") else BertModel
        model = kind(config)
    disable_progress_bar()  # the rehearsal says what it does in lines of its own
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
