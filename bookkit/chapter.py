"""What a notebook talks to: experiments run once, figures with their claims, the count of all."""

from __future__ import annotations

import html
import inspect
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bookkit.audit import Verifier
from bookkit.claims import (
    CLAIMS,
    FIGURES,
    LEDGER,
    RUNS,
    Finding,
    Judgement,
    Paper,
    judge,
    ledger_row,
    load_paper,
)
from bookkit.errors import BadValue
from bookkit.pagetables import claim_rows, claim_table
from bookkit.project import project_root
from bookkit.store import (
    Experiment,
    Found,
    Key,
    Result,
    Source,
    Store,
    code_digest,
    declared,
    digest_of,
    notebook_text,
    table_digest,
)

Data = Any
"""What an experiment reads: a `Source`, a table of another result, or data with a digest."""


class Chapter:
    """One paper, one model, and everything that was found so far.

    paper   the key of a claims file, such as "clark2019"
    model   the name of the model that the findings are about
    store   where results are kept
    claims  False for a chapter of its own, which has no claims file
    offers  what an experiment gets if it has a parameter of that name: sources and plain values
    """

    def __init__(
        self,
        paper: str,
        *,
        model: str,
        store: Store,
        offers: Mapping[str, Any] | None = None,
        claims: bool = True,
    ) -> None:
        self.paper = load_paper(paper) if claims else Paper(paper, (), {}, ())
        self.model, self.store = model, store
        self.offers = dict(offers or {})
        self.findings: dict[str, Finding] = {}
        self.results: list[Result] = []
        self._verifier = Verifier.asked(os.environ)

    def run(self, experiment: Experiment, *inputs: Data, **parameters: Any) -> Found:
        """What an experiment finds on these inputs; computed once, then read back.

        The experiment gets what the chapter offers (a seed, a model) and a `progress` if it has
        parameters of that name. Its findings are kept for the claims.
        """
        asks = inspect.signature(experiment).parameters
        offered = {name: self.offers[name] for name in asks if name in self.offers}
        given = {**offered, **parameters}
        sources = [one for one in (*inputs, *given.values()) if isinstance(one, Source)]
        name = f"{self.paper.key}/{experiment.__name__}"

        def compute() -> Found:
            values = {key: _value(one) for key, one in given.items()}
            if "progress" in asks:
                values["progress"] = _Ticker(name)
            return experiment(*map(_value, inputs), **values)

        key = self._key(name, experiment, inputs, given)
        result = self.store.find(key.name)
        if result is None:
            for one in sources:
                _ = one.value  # now it is known for sure what is read
            key = self._key(name, experiment, inputs, given)
            result = self.store.remembered(key, compute, lambda: self._about(experiment))
        elif self._verifier.wants(result, experiment):
            result = self._verifier.compare(result, compute())
        self.results.append(result)
        self.findings |= result.found.findings
        return result.found

    def _key(
        self, name: str, experiment: Experiment, inputs: Sequence[Data], given: Mapping[str, Any]
    ) -> Key:
        says = declared(experiment)
        named = {key: one for key, one in given.items() if isinstance(one, Source)}
        data = [_described(one) for one in (*inputs, *named.values())]
        data += [self.described(asset) for asset in says.reads]
        settings = {key: one for key, one in given.items() if key not in named}
        text = notebook_text(experiment)
        if text is not None:
            settings["text"] = text
        return Key(name, says.version, settings, tuple(data))

    def described(self, asset: str) -> Mapping[str, Any]:
        """What is known of a file or table that an experiment opens by its name."""
        raise BadValue(f"'{asset}' cannot be described here; expected a chapter that knows assets.")

    def _about(self, experiment: Experiment) -> dict[str, Any]:
        """What the record of a run says for audit."""
        file = project_root() / "papers" / f"{self.paper.key}.yaml"
        claims = digest_of(file.read_text(encoding="utf-8"))[:16] if self.paper.claims else None
        return {"code": code_digest(experiment.__module__), "claims": claims}

    def name_of(self, found: Found) -> str:
        """The name of the result that something was found in."""
        return next(one.name for one in self.results if one.found is found)

    def judged(self, *claims: str) -> list[Judgement]:
        """The verdicts on some claims of the paper, or on all of them."""
        chosen = [self.paper.claim(name) for name in claims] or self.paper.claims
        own = self.paper.models
        return [judge(claim, self.findings, model=self.model, models=own) for claim in chosen]

    def show(self, figure: Any, claim: str | Sequence[str] = ()) -> Shown:
        """A figure or table, with the verdicts on the claims it bears on beneath it."""
        names = [claim] if isinstance(claim, str) else list(claim)
        if not names:
            return Shown(figure)
        return Shown(figure, self.claims(*names), claim_rows(self.judged(*names)))

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
        rows = [ledger_row(one, model=self.model) for one in judged]
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
    return dict(one.record) | {"facts": facts}


@dataclass(frozen=True, eq=False)
class Shown:
    """A figure and the claims beneath it, as one output that carries both as data, too."""

    figure: Any
    claims: Any = None
    rows: list[dict[str, str]] = field(default_factory=list, repr=False)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()[0]["text/html"]

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        page, carried = _on_page(self.figure)
        if self.claims is not None:
            page, carried = page + self.claims._repr_html_(), {**carried, CLAIMS: self.rows}
        return {"text/html": page}, carried


@dataclass(frozen=True, eq=False)
class Gallery:
    """Several figures, each under its name."""

    figures: dict[str, Any]
    otherwise: str = ""

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()[0]["text/html"]

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        if not self.figures:
            return {"text/html": f'<p class="attn-note">{html.escape(self.otherwise)}</p>'}, {}
        page, drawn = "", []
        for name, figure in self.figures.items():
            page += f'<p class="attn-name">{html.escape(name)}</p>'
            part, carried = _on_page(figure)
            for one in carried.get(FIGURES, []):
                place = [len(page) + at for at in one["svg"]]
                drawn.append({**one, "name": name, "svg": place})
            page += part
        return {"text/html": page}, {FIGURES: drawn}


def _on_page(thing: Any) -> tuple[str, dict[str, Any]]:
    """The HTML of something that a notebook can show, and the data that its output carries."""
    if not hasattr(thing, "_repr_mimebundle_"):
        return str(thing._repr_html_()), {}
    shown, carried = thing._repr_mimebundle_()
    return shown["text/html"], carried


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
                "experiment": name.partition("/")[2].replace("_", " "),
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


def _described(given: Any) -> Mapping[str, Any]:
    """What a result remembers of an input."""
    if isinstance(given, Source):
        return given.description
    if isinstance(given, pd.DataFrame):
        return {"table": len(given), "digest": table_digest(given)}
    if isinstance(getattr(given, "digest", None), str):
        return {"name": getattr(given, "name", ""), "digest": given.digest}
    raise BadValue(
        f"an input is {type(given).__name__}; expected a source, a table, or data with a digest."
    )


def _value(given: Any) -> Any:
    return given.value if isinstance(given, Source) else given


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
