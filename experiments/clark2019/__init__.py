"""The experiments of Clark et al. 2019, "What Does BERT Look At?": what each measures and finds.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/clark2019.yaml ask for, and plain facts.
"""

from experiments.clark2019.coreference import (
    coreference,
    table2_paper,
    table2_quotes,
    table2_rows,
)
from experiments.clark2019.disagreements import disagreements
from experiments.clark2019.distances import distance_matrix, divergences, plane
from experiments.clark2019.gradients import figure3_rows, gradient_quotes, gradients
from experiments.clark2019.parsing import probes, table3_paper, table3_quotes, table3_rows
from experiments.clark2019.portraits import portraits, relation_portraits
from experiments.clark2019.surface import even_shares, surface, surface_quotes
from experiments.clark2019.syntax import syntax, table1_quotes, table1_rows

__all__ = [
    "coreference",
    "disagreements",
    "distance_matrix",
    "divergences",
    "even_shares",
    "figure3_rows",
    "gradient_quotes",
    "gradients",
    "plane",
    "portraits",
    "probes",
    "relation_portraits",
    "surface",
    "surface_quotes",
    "syntax",
    "table1_quotes",
    "table1_rows",
    "table2_paper",
    "table2_quotes",
    "table2_rows",
    "table3_paper",
    "table3_quotes",
    "table3_rows",
]
