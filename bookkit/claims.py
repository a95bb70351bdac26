"""What the papers claim, how far ours may differ, and the verdict: rows of papers/*.yaml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from bookkit.errors import ClaimError, UnknownName, did_you_mean, unknown
from bookkit.project import project_root

Kind = Literal["value", "order", "exists", "share"]
Verdict = Literal["reproduced", "partly", "not reproduced", "not comparable", "absent"]
Bound = Literal["at_least", "at_most"]
LEDGER, RUNS = "attnlib.ledger", "attnlib.runs"
FIGURES, CLAIMS = "attnlib.figures", "attnlib.claims"
"""Under these names an output of an executed notebook carries rows for programs, as metadata."""


@dataclass(frozen=True)
class Phenomenon:
    """A predicate that any model can be held to: a measured number against a threshold."""

    text: str
    measure: str
    bound: Bound
    threshold: float

    def holds(self, value: float) -> bool:
        return value >= self.threshold if self.bound == "at_least" else value <= self.threshold


@dataclass(frozen=True)
class Claim:
    """One table row, figure or numbered finding of a paper.

    measure     names the number of ours that stands beside the paper's value
    tolerance   how far ours may lie from the paper's value, on the paper's own model
    deviations  ids of what we do differently, explained once in the same file
    """

    paper: str
    id: str
    where: str
    kind: Kind
    value: Mapping[str, Any]
    how: str
    measure: str
    tolerance: float
    phenomenon: Phenomenon
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paper:
    """A paper's claims and our deviations from it."""

    key: str
    models: tuple[str, ...]
    deviations: Mapping[str, str]
    claims: tuple[Claim, ...]

    @property
    def own(self) -> bool:
        """Whether the claims are this book's own: a paper's key ends in its year."""
        return not _year(self.key)

    def claim(self, name: str) -> Claim:
        known = {claim.id: claim for claim in self.claims}
        if name not in known:
            raise UnknownName(f"claim '{name}' of {self.key}. {did_you_mean(name, known)}")
        return known[name]


@dataclass(frozen=True)
class Finding:
    """What we measured for a claim: a number, perhaps with an interval."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Judgement:
    """A claim, what we found, and the verdict with its reason."""

    claim: Claim
    verdict: Verdict
    reason: str
    ours: Finding | None = None
    phenomenon: Finding | None = None
    holds: bool | None = None


def judge(
    claim: Claim, findings: Mapping[str, Finding], *, model: str, models: tuple[str, ...]
) -> Judgement:
    """The verdict on one claim.

    The value is judged only on the paper's own model; the phenomenon on every model. A number
    whose interval crosses the threshold supports the claim only in part.
    """
    seen = findings.get(claim.phenomenon.measure)
    ours = findings.get(claim.measure)
    if seen is None:
        return Judgement(claim, "absent", f"'{claim.phenomenon.measure}' was not measured", ours)
    if math.isnan(seen.value):
        return Judgement(claim, "not comparable", "undefined for this model and data", ours, seen)
    holds = claim.phenomenon.holds(seen.value)
    verdict: Verdict = _phenomenon_verdict(claim.phenomenon, seen)
    reason = f"{claim.phenomenon.text}: {seen.value:.3g}"
    if model in models and ours is not None and "value" in claim.value:
        near = abs(ours.value - float(claim.value["value"])) <= claim.tolerance
        reason += f"; value {'within' if near else 'beyond'} {claim.tolerance:g} of the paper's"
        if not near and verdict == "reproduced":
            verdict = "partly"
    return Judgement(claim, verdict, reason, ours, seen, holds)


def ledger_row(judgement: Judgement, *, model: str) -> dict[str, Any]:
    """A judgement as the ledger shows it, in plain values; what is not known is None."""
    claim, ours = judgement.claim, judgement.ours or Finding(math.nan)
    numbers = {"ours": ours.value, "low": ours.low, "high": ours.high}
    return {
        "paper": claim.paper,
        "id": claim.id,
        "where": claim.where,
        "kind": claim.kind,
        "paper_value": claim.value.get("value", claim.value.get("claim")),
        **{name: None if math.isnan(number) else number for name, number in numbers.items()},
        "phenomenon": claim.phenomenon.text,
        "holds": judgement.holds,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "model": model,
        "deviations": list(claim.deviations),
    }


def _phenomenon_verdict(phenomenon: Phenomenon, seen: Finding) -> Verdict:
    if not phenomenon.holds(seen.value):
        return "not reproduced"
    ends = (end for end in (seen.low, seen.high) if not math.isnan(end))
    return "reproduced" if all(phenomenon.holds(end) for end in ends) else "partly"


def paper_keys(folder: Path | None = None) -> list[str]:
    """The papers as they appeared; what has no year, our own claims, comes last.

    folder  of claims files; that of the book if none is given
    """
    folder = folder or project_root() / "papers"
    return sorted((path.stem for path in folder.glob("*.yaml")), key=by_year)


def by_year(key: str) -> tuple[bool, str, str]:
    """What papers are sorted by."""
    return not _year(key), _year(key), key


def _year(key: str) -> str:
    """The year at the end of a paper's key; empty for claims of the book's own."""
    return key[-4:] if key[-4:].isdigit() else ""


def load_paper(key: str, folder: Path | None = None) -> Paper:
    """The claims of a paper; every row is checked, nothing is ignored."""
    return _load_paper(key, folder or project_root() / "papers")


@cache
def _load_paper(key: str, folder: Path) -> Paper:
    known = paper_keys(folder)
    if key not in known:
        raise unknown("paper", key, known)
    content = yaml.safe_load((folder / f"{key}.yaml").read_text(encoding="utf-8"))
    deviations = content.get("deviations", {})
    claims = tuple(_claim(key, row, deviations) for row in content["claims"])
    twice = {claim.id for claim in claims if sum(c.id == claim.id for c in claims) > 1}
    if twice:
        raise ClaimError(f"{key}.yaml: claim '{min(twice)}' stands there twice.")
    return Paper(key, tuple(content["models"]), deviations, claims)


ROW = {"id", "where", "kind", "paper", "how", "measure", "tolerance", "phenomenon", "deviations"}


def _claim(paper: str, row: Mapping[str, Any], deviations: Mapping[str, str]) -> Claim:
    name = f"{paper}.yaml, claim '{row.get('id', '?')}'"
    wrong = set(row) - ROW or ROW - {"deviations"} - set(row)
    if wrong:
        state = "unknown" if wrong <= set(row) else "missing"
        raise ClaimError(f"{name}: {state} key '{min(wrong)}'. Expected {', '.join(sorted(ROW))}.")
    if row["kind"] not in get_args(Kind):
        raise ClaimError(f"{name}: kind '{row['kind']}'. Expected {', '.join(get_args(Kind))}.")
    for deviation in row.get("deviations", []):
        if deviation not in deviations:
            raise ClaimError(f"{name}: deviation '{deviation}' is not explained in the file.")
    changed = {
        "paper": paper,
        "value": row["paper"],
        "tolerance": float(row["tolerance"]),
        "phenomenon": _phenomenon(name, row["measure"], row["phenomenon"]),
        "deviations": tuple(row.get("deviations", [])),
    }
    return Claim(**{**row, **changed})


def _phenomenon(name: str, measure: str, given: Mapping[str, Any]) -> Phenomenon:
    bounds = [bound for bound in get_args(Bound) if bound in given]
    if "text" not in given or len(bounds) != 1 or set(given) - {"text", "measure", bounds[0]}:
        raise ClaimError(
            f"{name}: a phenomenon has text, at_least or at_most, and perhaps measure."
        )
    threshold = float(given[bounds[0]])
    return Phenomenon(given["text"], given.get("measure", measure), bounds[0], threshold)
