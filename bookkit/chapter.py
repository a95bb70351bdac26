"""What a notebook talks to: experiments run once, figures with their claims, the count of all."""

from __future__ import annotations

import html
import inspect
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from bookkit.audit import SECONDS, not_verified, verified
from bookkit.claims import (
    CLAIMS,
    FIGURES,
    FOUND,
    JUDGED,
    RUNS,
    Finding,
    Judgement,
    Paper,
    is_own_model,
    judge,
    ledger_row,
    load_paper,
)
from bookkit.errors import BadValue
from bookkit.pagetables import PageTable, claim_table, shown_verdict
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
    plain,
    table_digest,
)
from bookkit.templates import filled

Data = Any
"""What an experiment reads: a `Source`, a table of another result, or data with a digest."""


class Chapter:
    """One paper, one model, and everything that was found so far.

    paper   the key of a claims file, such as "clark2019"
    model   the name of the model that the findings are about
    also    other names of that model, by which a paper may know it
    store   where results are kept
    claims  False for a chapter of its own, which has no claims file
    offers  what an experiment gets if it has a parameter of that name: sources and plain values
    """

    def __init__(
        self,
        paper: str,
        *,
        model: str,
        also: Iterable[str] = (),
        store: Store,
        offers: Mapping[str, Any] | None = None,
        claims: bool = True,
    ) -> None:
        self.paper = load_paper(paper) if claims else Paper(paper, (), {}, ())
        self.model, self.store = model, store
        self.own_model = is_own_model({model, *also}, self.paper)
        self.offers = dict(offers or {})
        self.findings: dict[str, Finding] = {}
        self.found_in: dict[str, str] = {}  # finding -> result
        self.results: list[Result] = []

    def run(self, experiment: Experiment, *inputs: Data, **parameters: Any) -> Found:
        """What an experiment finds on these inputs; computed once, then read back.

        The experiment gets what the chapter offers (a seed, a model) if it has parameters of
        that name. Its findings are kept for the claims.
        """
        asks = inspect.signature(experiment).parameters
        offered = {name: self.offers[name] for name in asks if name in self.offers}
        given = {**offered, **parameters}
        sources = [one for one in (*inputs, *given.values()) if isinstance(one, Source)]
        name = f"{self.paper.key}/{experiment.__name__}"

        def compute() -> Found:
            values = {key: _value(one) for key, one in given.items()}
            with self.watching(_ticker(name)):
                return experiment(*map(_value, inputs), **values)

        key = self._key(name, experiment, inputs, given)
        result = self.store.find(key.name)
        if result is None:
            for one in sources:
                _ = one.value  # now it is known for sure what is read
            key = self._key(name, experiment, inputs, given)
            result = self.store.remembered(key, compute, lambda: self._about(experiment))
        elif SECONDS in os.environ:
            reason = not_verified(result, experiment, float(os.environ[SECONDS]))
            result = verified(result, None if reason else compute(), reason)
        self.results.append(result)
        self.findings |= result.found.findings
        self.found_in |= dict.fromkeys(result.found.findings, result.name)
        return result.found

    def watching(self, tick: Callable[[int, int], None]) -> AbstractContextManager[Any]:
        """Whatever a long experiment counts inside moves `tick`; a chapter may know how."""
        return nullcontext(tick)

    def _key(
        self, name: str, experiment: Experiment, inputs: Sequence[Data], given: Mapping[str, Any]
    ) -> Key:
        says = declared(experiment)
        named = {key: one for key, one in given.items() if isinstance(one, Source)}
        data = [_described(one) for one in (*inputs, *named.values())]
        data += [self.described(asset) for asset in says.reads]
        settings = {key: one for key, one in given.items() if key not in named}
        if experiment.__module__ == "__main__":  # it stands in a notebook: a reader may change it
            settings["text"] = inspect.getsource(experiment)
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
        return [judge(claim, self.findings, own_model=self.own_model) for claim in chosen]

    def rows(self, *claims: str) -> list[dict[str, Any]]:
        """The same as rows of the ledger, in plain values."""
        return [ledger_row(one, model=self.model) for one in self.judged(*claims)]

    def show(self, figure: Any, claim: str | Sequence[str] = (), caption: str = "") -> Shown:
        """A figure or table, with the verdicts on the claims it bears on beneath it.

        caption  what there is to see; a figure says it itself where none is given
        """
        page, carried = _on_page(figure.said(caption) if caption else figure)
        names = [claim] if isinstance(claim, str) else list(claim)
        if names:
            page += self.claims(*names)._repr_html_()
            carried = {**carried, CLAIMS: names}
        return Shown(page, carried, repr(figure))

    def gallery(self, figures: Mapping[str, Any], otherwise: str = "") -> Shown:
        """Several figures under their names, or a sentence where there is none."""
        if not figures:
            return Shown(f'<p class="attn-note">{html.escape(otherwise)}</p>', {}, otherwise)
        page, drawn = "", []
        for name, figure in figures.items():
            page += f'<p class="attn-name">{html.escape(name)}</p>'
            part, carried = _on_page(figure)
            for one in carried.get(FIGURES, []):
                place = [len(page) + at for at in one["svg"]]
                drawn.append({**one, "name": name, "svg": place})
            page += part
        return Shown(page, {FIGURES: drawn}, repr(figures))

    def claims(self, *names: str) -> Any:
        """The table of some claims: the paper, ours, the verdict."""
        if not names:
            raise BadValue("no claim was named; `ledger()` shows all of them.")
        return claim_table(self.rows(*names), {}, own=self.paper.own)

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
        table = pd.Series(self.paper.deviations, name="what").rename_axis("code").to_frame()
        return table.style.set_properties(**{"text-align": "left", "white-space": "normal"})

    def ledger(self) -> Shown:
        """All claims of the paper with their verdicts; the notebook carries what was found."""
        rows = self.rows()
        table = claim_table(rows, self.paper.deviations, own=self.paper.own)
        findings = {
            name: {**plain(asdict(one)), "result": self.found_in[name]}
            for name, one in self.findings.items()
        }
        found = {"paper": self.paper.key, "model": self.model, "own_model": self.own_model}
        return Shown(
            table._repr_html_(), {FOUND: [found | {"findings": findings}]}, f"{len(rows)} claims"
        )

    def totals(self) -> dict[str, int]:
        """How many findings got each verdict, and how many claims are definitions."""
        return dict(Counter(map(shown_verdict, self.rows())))

    def quote_totals(self) -> None:
        """Make the counts of verdicts quotable; `n_open` are those that could not be judged."""
        counts = self.totals()
        judged = {f"n_{name}": counts.get(name, 0) for name in JUDGED}
        n_open = counts.get("undefined", 0) + counts.get("to be run", 0)
        self.quote(n_claims=sum(judged.values()) + n_open, n_open=n_open, **judged)

    def quote(self, **values: Any) -> None:
        """Make values quotable in the text of the chapter, under their names."""
        from myst_nb import glue

        for name, value in values.items():  # a number that is undefined can still be formatted
            plain = value.item() if isinstance(value, np.generic) else value
            glue(name, math.nan if plain is None else plain, display=False)

    def quote_findings(self, **names: str) -> None:
        """Make the value of findings quotable: name in the text = name of the finding."""
        self.quote(**{short: self.findings[name].value for short, name in names.items()})

    def compute_card(self) -> Shown:
        """What every experiment of the chapter read, and what it cost; records go along."""
        runs = [_run_record(one) for one in self.results]
        return Shown(cost_table(runs)._repr_html_(), {RUNS: runs}, f"{len(runs)} experiments")


@dataclass(frozen=True, eq=False)
class Shown:
    """An output of a notebook: HTML for the page, rows for programs as metadata, plain text."""

    page: str
    carried: dict[str, Any]
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.page

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/plain": self.text, "text/html": self.page}, self.carried


def _on_page(thing: Any) -> tuple[str, dict[str, Any]]:
    """The HTML of something that a notebook can show, and the data that its output carries."""
    if not hasattr(thing, "_repr_mimebundle_"):
        return str(thing._repr_html_()), {}
    shown, carried = thing._repr_mimebundle_()
    return shown["text/html"], carried


def _run_record(one: Result) -> dict[str, Any]:
    """What the card carries of a run; lists stay with the result: they would weigh megabytes."""
    facts = {
        name: value
        for name, value in one.found.facts.items()
        if not isinstance(value, list | tuple | Mapping)
    }
    return dict(one.record) | {"facts": facts}


def cost_table(runs: Sequence[Mapping[str, Any]]) -> PageTable:
    """One row per experiment; the numbers of one that ran several times are summed."""
    facts = {"texts": "inputs", "tokens": "tokens", "passes": "passes"}
    rows = [
        {"experiment": run["experiment"], "runs": 1}
        | {name: run["facts"].get(fact) for name, fact in facts.items()}
        # with the training of a model that was kept from an earlier run
        | {"seconds": max(float(run["seconds"]), float(run["facts"].get("seconds") or 0.0))}
        | {"peak memory": run["peak_mib"]}
        for run in runs
    ]
    numbers = pd.DataFrame(rows).set_index("experiment").astype(float)
    table = numbers.groupby(level=0, sort=False).sum(min_count=1)
    table["peak memory"] = numbers["peak memory"].groupby(level=0).max()
    threads = " or ".join(map(str, sorted({run["threads"] for run in runs})))
    used = sorted({one for run in runs for one in run["versions"].items()})
    versions = ", ".join(f"{name} {version}" for name, version in used)
    minutes = numbers["seconds"].sum() / 60
    caption = f"{minutes:.0f} minutes in all, on {threads} CPU threads; {versions}."
    body = filled(Path(__file__).with_name("costs.html"), rows=table.to_dict("index"))
    head = "".join(f"<th>{name}</th>" for name in ("experiment", *table.columns))
    return PageTable(caption, table, f"<tr>{head}</tr>", body)


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


def _ticker(name: str) -> Callable[[int, int], None]:
    """How far a long experiment is, on stderr, at most every other second."""
    bar = tqdm(desc=name, mininterval=2, delay=0.1)  # shows nothing if nothing is counted

    def tick(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return tick
