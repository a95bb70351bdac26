"""What a notebook talks to: experiments run once, figures with their claims, the count of all."""

from __future__ import annotations

import html
import inspect
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import ALIASES, Corpus, load_corpus
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.stream import chosen_metrics, stream
from attnlib.models import Encoder, load_encoder, weights_digest
from bookkit.pagetables import claim_table
from bookkit.papers import LEDGER, RUNS, Finding, Judgement, judge, ledger_row, load_paper
from bookkit.results import Found, Result, code_digest, file_digest, remembered, table_digest

Experiment = Callable[..., Found]


class Chapter:
    """One paper, one model, and everything that was found so far.

    paper  the key of a claims file, such as "clark2019"
    model  a model's name, folder or hub id, or an Encoder
    """

    def __init__(
        self, paper: str, model: str | Path | Encoder, *, seed: int = 0, device: str = "auto"
    ) -> None:
        self.paper, self.seed = load_paper(paper), seed
        self._model, self._device = model, device
        self.findings: dict[str, Finding] = {}
        self.results: list[Result] = []

    @cached_property
    def encoder(self) -> Encoder:
        if isinstance(self._model, Encoder):
            return self._model
        return load_encoder(self._model, device=self._device)

    @cached_property
    def _model_digest(self) -> str:
        if isinstance(self._model, Encoder):  # its weights may be nobody's file
            return weights_digest(self._model)
        return file_digest(Path(self.encoder.source))

    def sibling(self, *, paper: str | None = None, model: str | None = None) -> Chapter:
        """A chapter on another paper or another model; what it runs is counted here, too.

        Its findings are its own: a claim is judged by what was found for its paper and model.
        """
        key = self.paper.key if paper is None else paper
        other = Chapter(key, model or self._model, seed=self.seed, device=self._device)
        if model is None:
            other.encoder = self.encoder
        other.results = self.results
        return other

    def corpus(self, name: str, limit: int | None = None, *, max_length: int = 128) -> Corpus:
        """A corpus by name, cut for the chapter's model and drawn by its seed."""
        tokenizer = self.encoder.tokenizer
        return load_corpus(
            name, limit=limit, seed=self.seed, tokenizer=tokenizer, max_length=max_length
        )

    def split(
        self, train: tuple[str, int | None], test: tuple[str, int | None]
    ) -> tuple[Corpus, Corpus]:
        """A corpus to train on and one to score on, each (name, limit).

        Of one and the same corpus, whole documents go to one side: no sentence is scored whose
        neighbours were trained on.
        """
        if len({ALIASES.get(name, name) for name, _ in (train, test)}) > 1:
            return self.corpus(*train), self.corpus(*test)
        if train[1] is None or test[1] is None:
            raise BadValue(f"'{test[0]}' is to be split in two; expected a limit for each part.")
        whole = self.corpus(train[0], train[1] + test[1])
        return split_by_document(whole, test[1], self.seed)

    def run(
        self, experiment: Experiment, *inputs: Corpus | pd.DataFrame, **parameters: Any
    ) -> Found:
        """What an experiment finds on these inputs; computed once, then read back.

        The experiment gets the chapter's encoder, seed and progress if it has parameters of that
        name. Its findings are kept for the claims.
        """
        asks = inspect.signature(experiment).parameters
        if "seed" in asks:
            parameters = {"seed": self.seed} | parameters
        given: dict[str, Any] = dict(parameters)
        told: dict[str, Any] = {"inputs": [_told(one) for one in inputs], **parameters}
        if "encoder" in asks:
            given["encoder"] = self.encoder
            told |= {"model": Path(self.encoder.name).name, "model_digest": self._model_digest}
        name = f"{self.paper.key}-{experiment.__name__}"

        def compute() -> Found:
            if "progress" in asks:
                given["progress"] = _Ticker(name)
            return experiment(*inputs, **given)

        result = remembered(name, told, code_digest(experiment), compute)
        self.results.append(result)
        self.findings |= result.found.findings
        return result.found

    def measure(self, corpus: str | Corpus, metrics: Sequence[str], **options: Any) -> pd.DataFrame:
        """The table of some metrics on a corpus: one row per metric and head.

        options  limit with a corpus name, and all that `attnlib.measure` takes besides
        """
        if isinstance(corpus, str):
            length = options.get("max_length", 128)
            corpus = self.corpus(corpus, options.pop("limit", None), max_length=length)
        return self.run(measured, corpus, metrics=list(metrics), **options).table

    def run_each(
        self, experiment: Experiment, corpora: Iterable[str], limit: int | None = None, **given: Any
    ) -> dict[str, Found]:
        """The same experiment on several corpora, by their names."""
        return {name: self.run(experiment, self.corpus(name, limit), **given) for name in corpora}

    def name_of(self, found: Found) -> str:
        """The name of the result that something was found in."""
        return next(str(one.manifest["name"]) for one in self.results if one.found is found)

    def judged(self, *claims: str) -> list[Judgement]:
        """The verdicts on some claims of the paper, or on all of them."""
        chosen = [self.paper.claim(name) for name in claims] or self.paper.claims
        name, own = self.encoder.name, self.paper.models
        return [judge(claim, self.findings, model=name, models=own) for claim in chosen]

    def show(self, figure: Any, claim: str | Sequence[str] = ()) -> Shown:
        """A figure or table, with the verdicts on the claims it bears on beneath it."""
        names = [claim] if isinstance(claim, str) else list(claim)
        return Shown(figure, self.claims(*names) if names else None)

    def gallery(self, figures: Mapping[str, Any], otherwise: str = "") -> Gallery:
        """Several figures under their names, or a sentence where there is none."""
        return Gallery(dict(figures), otherwise)

    def claims(self, *names: str) -> Any:
        """The table of some claims: the paper, ours, the verdict."""
        if not names:
            raise BadValue("no claim was named; `ledger()` shows all of them.")
        return claim_table(self.judged(*names), {}, own=self.paper.own)

    def claim_names(self, *places: str, but: Sequence[str] = ()) -> list[str]:
        """The claims on some places of the paper, such as "tab1"; the first part of their ids."""
        ids = [claim.id for claim in self.paper.claims if claim.id.startswith(places)]
        return [name for name in ids if name not in but]

    def reported(self, place: str) -> dict[str, dict[str, Any]]:
        """The paper's values for the rows of a table, by the last part of the claims' ids."""
        rows = [claim for claim in self.paper.claims if claim.id.startswith(f"{place}.")]
        return {claim.id.partition(".")[2]: dict(claim.value) for claim in rows}

    def deviations(self) -> Any:
        """What we do differently from the paper, by the codes that claims carry."""
        rows = [{"code": code, "what": what} for code, what in self.paper.deviations.items()]
        return (
            pd.DataFrame(rows)
            .set_index("code")
            .style.set_properties(**{"text-align": "left", "white-space": "normal"})
        )

    def ledger(self) -> Ledger:
        """All claims of the paper with their verdicts; the executed notebook carries them along."""
        judged = self.judged()
        rows = [ledger_row(one, model=self.encoder.name) for one in judged]
        told = claim_table(judged, self.paper.deviations, own=self.paper.own)
        return Ledger(told, rows)

    def totals(self) -> dict[str, int]:
        """How many claims got each verdict."""
        verdicts = [one.verdict for one in self.judged()]
        return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}

    def quote(self, **values: Any) -> None:
        """Make values quotable in the text of the chapter, under their names."""
        from myst_nb import glue

        for name, value in values.items():  # a number that is undefined can still be formatted
            plain = value.item() if isinstance(value, np.generic) else value
            glue(name, math.nan if plain is None else plain, display=False)

    def quote_findings(self, **names: str) -> None:
        """Make the value of findings quotable: name in the text = name of the finding."""
        self.quote(**{short: self.findings[name].value for short, name in names.items()})

    def compute_card(self) -> ComputeCard:
        """What every experiment of the chapter read, and what it cost."""
        return ComputeCard([_run_record(one) for one in self.results])


def _run_record(one: Result) -> dict[str, Any]:
    """What the card carries of a run; lists stay with the result: they would weigh megabytes."""
    facts = {
        name: value
        for name, value in one.found.facts.items()
        if not isinstance(value, list | tuple | Mapping)
    }
    return dict(one.manifest) | {"facts": facts}


def split_by_document(corpus: Corpus, n_test: int, seed: int = 0) -> tuple[Corpus, Corpus]:
    """Documents drawn at random until they hold `n_test` examples, and all other documents."""
    sizes: dict[str, int] = {}
    for one in corpus.examples:
        sizes[_document(one)] = sizes.get(_document(one), 0) + 1
    chosen: set[str] = set()
    for name in random.Random(seed).sample(sorted(sizes), len(sizes)):
        if sum(sizes[other] for other in chosen) >= n_test:
            break
        chosen.add(name)
    sides = [
        tuple(e for e in corpus.examples if (_document(e) in chosen) is t) for t in (False, True)
    ]
    if not all(sides):
        raise CorpusError(
            f"'{corpus.name}' has {len(sizes)} document(s) and cannot be split by document. "
            "Give a test corpus of its own."
        )
    train, test = (
        replace(corpus, examples=side, digest=f"{corpus.digest[:12]}-{part}-{n_test}-{seed}")
        for side, part in zip(sides, ("train", "test"), strict=True)
    )
    return train, test


def _document(example: Any) -> str:
    return str(getattr(example, "document", None) or example.id)


def measured(
    corpus: Corpus,
    *,
    encoder: Encoder,
    metrics: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Found:
    """Plain metrics of every head on a corpus."""
    found = stream(encoder, corpus, chosen_metrics(metrics), progress=progress, **options)
    return Found(found.not_empty().table(), facts={"inputs": found.n_examples, **found.skipped})


@dataclass(frozen=True, eq=False)
class Shown:
    """A figure and the claims beneath it, as one output."""

    figure: Any
    claims: Any = None

    def _repr_html_(self) -> str:
        beneath = "" if self.claims is None else self.claims._repr_html_()
        return str(self.figure._repr_html_()) + beneath


@dataclass(frozen=True, eq=False)
class Gallery:
    """Several figures, each under its name."""

    figures: dict[str, Any]
    otherwise: str = ""

    def _repr_html_(self) -> str:
        if not self.figures:
            return f'<p class="attn-note">{html.escape(self.otherwise)}</p>'
        parts = (
            f'<p class="attn-name">{html.escape(name)}</p>{figure._repr_html_()}'
            for name, figure in self.figures.items()
        )
        return "".join(parts)


@dataclass(frozen=True, eq=False)
class Ledger:
    """All claims: a table for the page, rows for `attnlib ledger`."""

    table: Any
    rows: list[dict[str, Any]]

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        told = f"{len(self.rows)} claims"
        return {"text/plain": told, "text/html": self.table._repr_html_()}, {LEDGER: self.rows}


@dataclass(frozen=True, eq=False)
class ComputeCard:
    """What each experiment cost, from the records of the runs themselves."""

    runs: list[dict[str, Any]]

    @property
    def table(self) -> pd.DataFrame:
        """One row per experiment; the numbers of one that ran several times are summed."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for one in self.runs:
            groups.setdefault(one["experiment"], []).append(one)
        rows = [
            {
                "experiment": name.partition("-")[2].replace("_", " "),
                "runs": len(runs),
                **{part: _total(runs, part) for part in ("inputs", "tokens", "passes")},
                "seconds": sum(map(_seconds, runs)),
                "peak_mib": max(one["peak_mib"] for one in runs),
            }
            for name, runs in groups.items()
        ]
        return pd.DataFrame(rows)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        told = f"{len(self.runs)} experiments"
        return {"text/plain": told, "text/html": self._html()}, {RUNS: self.runs}

    def _versions(self) -> str:
        told = {(name, version) for run in self.runs for name, version in run["versions"].items()}
        return ", ".join(f"{name} {version}" for name, version in sorted(told))

    def _html(self) -> str:
        names = ("experiment", "runs", "texts", "tokens", "passes", "seconds", "peak memory")
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(f"<tr>{_cells(row)}</tr>" for row in self.table.to_dict("records"))
        total = sum(map(_seconds, self.runs))
        threads = sorted({run["threads"] for run in self.runs})
        on = " or ".join(map(str, threads))
        caption = f"{total / 60:.0f} minutes in all, on {on} CPU threads; {self._versions()}."
        inside = f"<caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        return f'<div class="attn-table"><table>{inside}<tbody>{body}</tbody></table></div>'


def _total(runs: Iterable[Mapping[str, Any]], part: str) -> float | None:
    """A fact summed over runs; None where no run has it."""
    known = [run["facts"][part] for run in runs if run["facts"].get(part) is not None]
    return sum(known) if known else None


def _seconds(run: Mapping[str, Any]) -> float:
    """What an experiment cost, with the training of a model that was kept from an earlier run."""
    return max(float(run["seconds"]), float(run["facts"].get("seconds") or 0.0))


def _cells(row: Mapping[str, Any]) -> str:
    def shown(value: Any, unit: str = "") -> str:
        return "" if value is None or value != value else f"{value:,.0f}{unit}"

    numbers = (shown(row[name]) for name in ("runs", "inputs", "tokens", "passes", "seconds"))
    cells = "".join(f"<td>{number}</td>" for number in numbers)
    name = html.escape(str(row["experiment"]))
    return f"<th>{name}</th>{cells}<td>{shown(row['peak_mib'], ' MiB')}</td>"


def _told(given: Corpus | pd.DataFrame) -> dict[str, Any]:
    """What a result remembers of an input."""
    if isinstance(given, Corpus):
        told = {"corpus": given.name, "source": Path(given.source).name, "examples": len(given)}
        return {**told, "digest": given.digest[:32]}
    if isinstance(given, pd.DataFrame):
        return {"table": table_digest(given)}
    raise BadValue(f"an input is {type(given).__name__}; expected a Corpus or a table.")


class _Ticker:
    """How far a long experiment is, on stderr, at most every other second."""

    def __init__(self, name: str) -> None:
        self.name, self.last = name, 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.last > 2 or done == total:
            self.last = now
            print(f"\r{self.name}: {done}/{total}", end="", file=sys.stderr, flush=True)
            if done == total:
                print(file=sys.stderr)
