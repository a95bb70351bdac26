"""A chapter on attention heads: a model and corpora that are described before they are loaded."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from attnlib.data.assets import known
from attnlib.data.corpora import (
    ALIASES,
    Corpus,
    corpus_name,
    examples_digest,
    known_corpora,
    load_corpus,
)
from attnlib.data.parser import PARSER
from attnlib.errors import BadValue, CorpusError
from attnlib.files import sha256_of
from attnlib.measuring.stream import chosen_metrics, stream
from attnlib.models import Encoder, load_encoder, model_folder, weights_digest
from attnlib.plots.viewer import View
from attnlib.progress import Tick, watched
from bookkit import chapter as kit
from bookkit.editions import book_store
from bookkit.store import Experiment, Found, Source, Store, digest_of, experiment
from experiments.shared.views import head_readings, view_of


class Chapter(kit.Chapter):
    """One paper, one model, and everything that was found so far.

    paper  the key of a claims file, such as "clark2019"
    model  a model's name, folder or hub id, or an Encoder
    """

    def __init__(
        self,
        paper: str,
        model: str | Path | Encoder,
        *,
        seed: int = 0,
        device: str = "auto",
        store: Store | None = None,
        claims: bool = True,
    ) -> None:
        store = store or book_store()
        self._given, self.seed, self.device = model, seed, device
        self.encoder = model_source(store, model, device)
        name = model.name if isinstance(model, Encoder) else str(model)
        offers = {"encoder": self.encoder, "seed": seed}
        super().__init__(
            paper, model=name, also=names_of(model), store=store, offers=offers, claims=claims
        )

    def watching(self, tick: Tick) -> AbstractContextManager[None]:
        return watched(tick)

    def sibling(self, *, paper: str | None = None, model: str | None = None) -> Chapter:
        """A chapter on another paper or another model; what it runs is counted here, too.

        Its findings are its own: a claim is judged by what was found for its paper and model.
        """
        key = self.paper.key if paper is None else paper
        given = self._given if model is None else model
        other = Chapter(key, given, seed=self.seed, device=self.device, store=self.store)
        if model is None:
            other.encoder = other.offers["encoder"] = self.encoder
        other.results = self.results
        return other

    def corpus(
        self, name: str, limit: int | None = None, *, max_length: int = 128
    ) -> Source[Corpus]:
        """A corpus by name, cut for the chapter's model and drawn by its seed."""
        chosen: dict[str, Any] = {"limit": limit, "seed": self.seed, "max_length": max_length}
        recipe = {"corpus": corpus_name(name), **chosen, "tokenizer": self.encoder.recipe}

        def load() -> Corpus:
            return load_corpus(name, tokenizer=self.encoder.value.tokenizer, **chosen)

        return Source(self.store, recipe | _pins_of(name), load, describe_corpus)

    def derived(
        self, made: Callable[..., Corpus], *corpora: Source[Corpus], **given: Any
    ) -> Source[Corpus]:
        """A corpus made from others by a function whose name says how."""
        whose = {"of": [one.recipe for one in corpora], **given}
        recipe = {"corpus": made.__name__, **whose}

        def load() -> Corpus:
            return made(*(one.value for one in corpora), **given)

        return Source(self.store, recipe, load, describe_corpus)

    def split(
        self, train: tuple[str, int | None], test: tuple[str, int | None]
    ) -> tuple[Source[Corpus], Source[Corpus]]:
        """A corpus to train on and one to score on, each (name, limit).

        Of one and the same corpus, whole documents go to one side: no sentence is scored whose
        neighbours were trained on.
        """
        if len({ALIASES.get(name, name) for name, _ in (train, test)}) > 1:
            return self.corpus(*train), self.corpus(*test)
        if train[1] is None or test[1] is None:
            raise BadValue(f"'{test[0]}' is to be split in two; expected a limit for each part.")
        whole = self.corpus(train[0], train[1] + test[1])
        sizes = {"n_test": test[1], "seed": self.seed}
        return (
            self.derived(training_documents, whole, **sizes),
            self.derived(test_documents, whole, **sizes),
        )

    def described(self, asset: str) -> Mapping[str, Any]:
        """The pins of an asset that an experiment opens by its name."""
        return {"asset": asset, "digest": asset_pin(asset)}

    def run_each(
        self, experiment: Experiment, corpora: Iterable[str], **given: Any
    ) -> dict[str, Found]:
        """The same experiment on several corpora, by their names."""
        return {name: self.run(experiment, self.corpus(name), **given) for name in corpora}

    def view(self, texts: Sequence[Any]) -> View:
        """The head viewer on some texts, or pairs of texts, to choose from."""
        return view_of(self.run(head_readings, texts=list(texts)))


@experiment(version=1)
def measured(corpus: Corpus, *, encoder: Encoder, metrics: Sequence[str], **options: Any) -> Found:
    """Plain metrics of every head on a corpus."""
    found = stream(encoder, corpus, chosen_metrics(metrics), **options)
    return Found(found.not_empty().table(), facts={"inputs": found.n_examples, **found.skipped})


# --- what is known of models, corpora and assets --------------------------------------------------


def model_source(store: Store, model: str | Path | Encoder, device: str) -> Source[Encoder]:
    """A model that is loaded when an experiment needs it."""
    if isinstance(model, Encoder):  # its weights may be nobody's file
        own = {"model": model.name, "weights": weights_digest(model)}
        return Source(store, own, lambda: model, _describe_model)
    name = str(model)
    pin = asset_pin(name) if name in known() else file_digest(model_folder(name))
    recipe = {"model": Path(name).name, "pin": pin}
    return Source(store, recipe, lambda: load_encoder(name, device=device), _describe_model)


def names_of(model: str | Path | Encoder) -> list[str]:
    """The known models that have the very weights of this one: a copy may have any name."""
    folder = Path(model.source if isinstance(model, Encoder) else model).expanduser()
    held = {sha256_of(path) for path in folder.glob("*.safetensors")} if folder.is_dir() else set()
    return [
        name
        for name, asset in known().items()
        if asset.kind == "model"
        and any(file.sha256 in held for form in asset.forms for file in form.files)
    ]


def _describe_model(encoder: Encoder) -> dict[str, Any]:
    folder = Path(encoder.source)
    digest = file_digest(folder) if folder.is_dir() else weights_digest(encoder)
    sizes = {name: getattr(encoder, name) for name in ("n_layers", "n_heads", "max_length")}
    return {"name": Path(encoder.name).name, "digest": digest, **sizes}


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """What is known of a corpus without its texts."""
    pairs = sum(len(one.parts) > 1 for one in corpus.examples)
    told = {"name": corpus.name, "kind": corpus.kind, "examples": len(corpus), "pairs": pairs}
    return {**told, "source": Path(corpus.source).name, "digest": corpus.digest[:32]}


def _pins_of(name: str) -> dict[str, Any]:
    """The pinned hashes behind a named corpus, or the content of a user's own file."""
    info = known_corpora().get(corpus_name(name))
    if info is None:
        path = Path(name)
        return {"file": sha256_of(path)} if path.is_file() else {}
    pins = {"assets": [asset_pin(asset) for asset in info.assets]}
    if info.folder is not None:
        pins["folder"] = [file_digest(info.folder)]
    return pins | {"parser": asset_pin(PARSER)}


@cache
def asset_pin(name: str) -> str:
    """A digest of the pinned hashes of an asset's files, in all the forms it may have."""
    return digest_of(sorted(form.key for form in known()[name].forms))[:16]


def file_digest(folder: Path) -> str:
    """A digest of all files of a folder, such as a model's."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if any(part.startswith((".", "__")) for part in path.relative_to(folder).parts):
            continue  # notes on how it came here
        digest.update(f"{path.relative_to(folder)}\0".encode() + bytes.fromhex(sha256_of(path)))
    return digest.hexdigest()[:16]


# --- one corpus in two parts ----------------------------------------------------------------------


def training_documents(corpus: Corpus, *, n_test: int, seed: int) -> Corpus:
    """All documents but those of `test_documents`."""
    return split_by_document(corpus, n_test, seed)[0]


def test_documents(corpus: Corpus, *, n_test: int, seed: int) -> Corpus:
    """Documents drawn at random until they hold `n_test` examples."""
    return split_by_document(corpus, n_test, seed)[1]


def split_by_document(corpus: Corpus, n_test: int, seed: int = 0) -> tuple[Corpus, Corpus]:
    """Documents drawn at random until they hold `n_test` examples, and all other documents."""
    sizes = Counter(map(_document, corpus.examples))
    chosen: set[str] = set()
    for name in random.Random(seed).sample(sorted(sizes), len(sizes)):
        if sum(sizes[other] for other in chosen) >= n_test:
            break
        chosen.add(name)
    sides = [[e for e in corpus.examples if (_document(e) in chosen) is t] for t in (False, True)]
    if not all(sides):
        raise CorpusError(
            f"'{corpus.name}' has {len(sizes)} document(s) and cannot be split by document. "
            "Give a test corpus of its own."
        )
    train, test = (
        replace(corpus, examples=tuple(side), digest=examples_digest(side)) for side in sides
    )
    return train, test


def _document(example: Any) -> str:
    return str(getattr(example, "document", None) or example.id)
