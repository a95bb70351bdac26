"""What moves a head's name more: another form of the input, or another kind of text?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlib.agreement.pairs import over_pairs
from attnlib.agreement.vocabularies import VOCABULARIES, labels_of
from attnlib.kovaleva2019.grids import drawn
from attnlib.results import Found
from attnlib.taxonomies import agreement_kappa

FORM, KIND = "form", "kind"


def form_and_kind(*labels: pd.DataFrame, names: Sequence[str]) -> Found:
    """Cohen's kappa of a vocabulary with itself where only the form differs, or only the kind.

    labels  tables of `head_labels`: on long inputs, on sentences of the same kind of text, and on
            short texts of other kinds; their corpora are in `names`
    table   vocabulary, differs ("form" or "kind"), one, other, kappa, low, high
    """
    sentences = labels[1]
    rows, again = [], {FORM: [], KIND: []}  # type: ignore[var-annotated]
    for place in (0, *range(2, len(labels))):
        differs = KIND if place else FORM
        for vocabulary in VOCABULARIES:
            one, ones = labels_of(sentences, vocabulary)
            other, others = labels_of(labels[place], vocabulary)
            draws = [agreement_kappa(one, other)]
            draws += [agreement_kappa(a, b) for a, b in zip(ones, others, strict=True)]
            again[differs].append(draws)
            found = drawn(draws)
            rows.append(
                {
                    **{"vocabulary": vocabulary, "differs": differs},
                    **{"one": names[1], "other": names[place]},
                    **{"kappa": found.value, "low": found.low, "high": found.high},
                }
            )
    form, kind = (over_pairs(np.nanmedian, again[differs]) for differs in (FORM, KIND))
    numbers = {"form.kappa": form, "kind.kappa": kind, "form.lead": kind - form}
    return Found(pd.DataFrame(rows), {name: drawn(values) for name, values in numbers.items()})


def form_rows(found: Found, short: dict[str, str]) -> pd.DataFrame:
    """Kappas as `labelled_scores` draws them: a panel per pair of corpora, a row per vocabulary."""
    told = {FORM: "same kind, other form", KIND: "same form, other kind"}
    table = found.table
    group = [f"{told[row.differs]}: {row.other}" for row in table.itertuples()]
    return table.assign(label=table["vocabulary"].map(short), group=group, value=table["kappa"])


def form_caption(found: Found) -> str:
    """What to see: whether names follow the form or the kind of text."""
    table = found.table
    form, kind = (found.findings[name].value for name in ("form.kappa", "kind.kappa"))
    return (
        f"How alike each vocabulary names the heads on {table['one'].iloc[0]}, single sentences, "
        f"and on other inputs. Median over vocabularies: {form:.2f} where the kind of text is the "
        f"same and the form is not, {kind:.2f} where the form is the same and the kind is not."
    ).replace("-0.", "−0.")
