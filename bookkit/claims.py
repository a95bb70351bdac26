"""What the papers claim, and the verdicts on it: rows of papers/*.yaml, and the rules.

Two things are judged and never mixed. The *phenomenon*, a number against a threshold, is judged on
every model by its interval. The *value* is judged on the paper's own model alone, by its tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from bookkit.errors import ClaimError, UnknownName, did_you_mean, unknown
from bookkit.project import project_root

Kind = Literal["value", "order", "exists", "share"]
Evidence = Literal["finding", "definition"]
Exact = Literal["count", "identity"]
Bound = Literal["at_least", "at_most"]
Verdict = Literal["holds", "undecided", "fails", "undefined", "to be run"]
ValueVerdict = Literal["same", "differs"]
JUDGED: tuple[Verdict, ...] = ("holds", "undecided", "fails")
"""The verdicts that are counted; the others say why a claim could not be judged."""
FOUND, RUNS = "attnlib.found", "attnlib.runs"
FIGURES, CLAIMS = "attnlib.figures", "attnlib.claims"
"""Under these names an output of an executed notebook carries rows for programs, as metadata."""


@dataclass(frozen=True)
class Finding:
    """What we measured for a claim: a number and its 95% interval; NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def has_interval(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))


@dataclass(frozen=True)
class Phenomenon:
    """A predicate that any model can be held to: a measured number against a threshold.

    exact  why the number needs no interval: it is a count of what there is, or an identity
    """

    text: str
    measure: str
    bound: Bound
    threshold: float
    exact: Exact | None = None

    def holds(self, value: float) -> bool:
        return value >= self.threshold if self.bound == "at_least" else value <= self.threshold

    def verdict(self, seen: Finding | None) -> tuple[Verdict, str]:
        """The verdict on what was seen, and its reason: both sides are judged by the interval."""
        if seen is None:
            return "to be run", f"'{self.measure}' was not measured"
        if math.isnan(seen.value):
            return "undefined", "the quantity has no meaning for this model and these data"
        if not seen.has_interval and self.exact is None:
            return "undecided", f"{seen.value:.3g}, without an interval"
        ends = (seen.low, seen.high) if seen.has_interval else (seen.value,)
        right = [self.holds(end) for end in ends]
        wanted = f"{self.bound.replace('_', ' ')} {self.threshold:g}"
        what = "the whole interval is" if seen.has_interval else f"{seen.value:.3g} is"
        if all(right):
            return "holds", f"{what} {wanted}"
        if not any(right):
            return "fails", f"{what} not {wanted}"
        return "undecided", f"{self.threshold:g} lies inside the interval"


@dataclass(frozen=True)
class Claim:
    """One table row, figure or numbered finding of a paper.

    value       what the paper says: a value, or a bound such as at_least (over half), and words
    measure     names the number of ours that stands next to the paper's value
    tolerance   how far ours may lie from the paper's value, on the paper's own model
    evidence    a finding could fail; a definition is true by construction: shown, never counted
    deviations  ids of what we do differently, explained once in the same file
    """

    paper: str
    id: str
    where: str
    kind: Kind
    value: Mapping[str, Any]
    how: str
    measure: str
    phenomenon: Phenomenon
    tolerance: float | None = None
    evidence: Evidence = "finding"
    deviations: tuple[str, ...] = ()

    def agrees(self, ours: Finding | None) -> bool | None:
        """Whether our number is within the tolerance of the paper's, or on its side of a bound.

        None where the paper gives no number, or there is none of ours.
        """
        if ours is None or math.isnan(ours.value):
            return None
        if "value" in self.value:
            return abs(ours.value - float(self.value["value"])) <= float(self.tolerance or 0)
        if "at_least" in self.value:
            return ours.value >= float(self.value["at_least"])
        if "at_most" in self.value:
            return ours.value <= float(self.value["at_most"])
        return None


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
class Judgement:
    """A claim, what we found, and both verdicts.

    ours     the number next to the paper's; seen  the number that decides the phenomenon
    agrees   whether ours is within the paper's tolerance, on whatever model
    """

    claim: Claim
    verdict: Verdict
    reason: str
    ours: Finding | None = None
    seen: Finding | None = None
    agrees: bool | None = None
    value_verdict: ValueVerdict | None = None


def judge(claim: Claim, findings: Mapping[str, Finding], *, own_model: bool) -> Judgement:
    """Both verdicts on one claim.

    own_model  whether the findings are those of a model that the paper itself used: only then is
               its value judged
    """
    seen, ours = findings.get(claim.phenomenon.measure), findings.get(claim.measure)
    verdict, reason = claim.phenomenon.verdict(seen)
    agrees = claim.agrees(ours)
    value: ValueVerdict | None = None
    if own_model and agrees is not None:
        value = "same" if agrees else "differs"
    return Judgement(claim, verdict, reason, ours, seen, agrees, value)


def is_own_model(names: Collection[str], paper: Paper) -> bool:
    """Whether a model that has these names is one of the paper's.

    A name may be a path or have an owner: google-bert/bert-base-uncased is bert-base-uncased.
    """
    return bool({name.rstrip("/").rpartition("/")[2] for name in names} & set(paper.models))


def ledger_row(judgement: Judgement, *, model: str) -> dict[str, Any]:
    """A judgement as the ledger shows it, in plain values; what is not known is None."""
    claim, paper = judgement.claim, judgement.claim.value
    numbers = _numbers("ours", "low", "high", judgement.ours)
    numbers |= _numbers("seen", "seen_low", "seen_high", judgement.seen)
    bounds = [name for name in ("value", *get_args(Bound)) if name in paper]
    return {
        "paper": claim.paper,
        "id": claim.id,
        "where": claim.where,
        "kind": claim.kind,
        "evidence": claim.evidence,
        "paper_value": paper[bounds[0]] if bounds else paper.get("claim"),
        "paper_bound": bounds[0] if bounds and bounds[0] != "value" else None,
        "paper_says": paper.get("claim"),
        "unit": paper.get("unit"),
        "tolerance": claim.tolerance,
        **numbers,
        "phenomenon": claim.phenomenon.text,
        "threshold": claim.phenomenon.threshold,
        "bound": claim.phenomenon.bound,
        "exact": claim.phenomenon.exact,
        "same_measure": claim.phenomenon.measure == claim.measure,
        "holds": {"holds": True, "fails": False}.get(judgement.verdict),
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "agrees": judgement.agrees,
        "value_verdict": judgement.value_verdict,
        "model": model,
        "deviations": list(claim.deviations),
    }


def _numbers(value: str, low: str, high: str, found: Finding | None) -> dict[str, float | None]:
    ends = (math.nan,) * 3 if found is None else (found.value, found.low, found.high)
    told = zip((value, low, high), ends, strict=True)
    return {name: None if math.isnan(number) else float(number) for name, number in told}


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


NEEDED = {"id", "where", "kind", "paper", "how", "measure", "phenomenon"}
ROW = NEEDED | {"tolerance", "evidence", "deviations"}


def _claim(paper: str, row: Mapping[str, Any], deviations: Mapping[str, str]) -> Claim:
    name = f"{paper}.yaml, claim '{row.get('id', '?')}'"
    wrong = set(row) - ROW or NEEDED - set(row)
    if wrong:
        state = "unknown" if wrong <= set(row) else "missing"
        raise ClaimError(f"{name}: {state} key '{min(wrong)}'. Expected {', '.join(sorted(ROW))}.")
    _check_choice(name, "kind", row["kind"], get_args(Kind))
    _check_choice(name, "evidence", row.get("evidence", "finding"), get_args(Evidence))
    for deviation in row.get("deviations", []):
        if deviation not in deviations:
            raise ClaimError(f"{name}: deviation '{deviation}' is not explained in the file.")
    if ("tolerance" in row) != ("value" in row["paper"]):
        raise ClaimError(f"{name}: a tolerance belongs to a value of the paper, and only to one.")
    if len({"value", *get_args(Bound)} & set(row["paper"])) > 1:
        raise ClaimError(f"{name}: the paper's number is one of value, at_least and at_most.")
    changed = {
        "paper": paper,
        "value": row["paper"],
        "tolerance": float(row["tolerance"]) if "tolerance" in row else None,
        "phenomenon": _phenomenon(name, row["measure"], row["phenomenon"]),
        "deviations": tuple(row.get("deviations", [])),
    }
    return Claim(**{**row, **changed})


def _phenomenon(name: str, measure: str, given: Mapping[str, Any]) -> Phenomenon:
    bounds = [bound for bound in get_args(Bound) if bound in given]
    known = {"text", "measure", "exact", *bounds[:1]}
    if "text" not in given or len(bounds) != 1 or set(given) - known:
        raise ClaimError(
            f"{name}: a phenomenon has text, at_least or at_most, and perhaps measure and exact."
        )
    if "exact" in given:
        _check_choice(name, "exact", given["exact"], get_args(Exact))
    threshold, told = float(given[bounds[0]]), given.get("measure", measure)
    return Phenomenon(given["text"], told, bounds[0], threshold, given.get("exact"))


def _check_choice(name: str, what: str, given: Any, known: Collection[str]) -> None:
    if given not in known:
        raise ClaimError(f"{name}: {what} '{given}'. Expected {', '.join(known)}.")
