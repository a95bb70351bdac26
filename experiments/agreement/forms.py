"""What moves a head's name more: another form of the input, or another kind of text?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.agreement.pairs import over_pairs
from experiments.agreement.vocabularies import VOCABULARIES, labels_of
from experiments.kovaleva2019.patterns import MAX_LENGTH
from experiments.shared.intervals import drawn
from experiments.shared.taxonomies import agreement_kappa

FORM, KIND = "form", "kind"


@experiment(version=1)
def form_and_kind(*labels: pd.DataFrame, names: Sequence[str]) -> Found:
    """Cohen's kappa of a vocabulary with itself where only the form differs, or only the kind.

    labels  tables of `head_labels`: on long inputs, on sentences of the same kind of text, and on
            single texts of other kinds; their corpora are in `names`
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
    form = over_pairs(np.nanmedian, again[FORM])
    kind = over_pairs(np.nanmedian, again[KIND]) if again[KIND] else np.full_like(form, np.nan)
    numbers = {"form.kappa": form, "kind.kappa": kind, "form.lead": kind - form}
    return Found(pd.DataFrame(rows), {name: drawn(values) for name, values in numbers.items()})


@experiment(version=1)
def input_lengths(*corpora: Corpus, encoder: Encoder) -> Found:
    """The mean length of the inputs as the model reads them: corpus, pieces."""
    rows = []
    for corpus in corpora:
        lengths = [min(len(one), MAX_LENGTH) for one in tokenized(corpus.examples, encoder)]
        rows.append({"corpus": corpus.name, "pieces": float(np.mean(lengths))})
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})


def form_rows(found: Found, short: dict[str, str]) -> pd.DataFrame:
    """Kappas as `labelled_scores` draws them: a panel per pair of corpora, a row per vocabulary."""
    told = {FORM: "same kind, other form", KIND: "single texts, other kind"}
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
        f"same and the form is not, {kind:.2f} on single texts of another kind."
    ).replace("-0.", "−0.")
