"""The experiments of Guan et al. 2020, "How far does BERT look at": what each finds, and how.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/guan2020.yaml ask for, and plain facts.
"""

from experiments.guan2020.ablating import ablations, control_answers, type_answers
from experiments.guan2020.closer import ablation_decisions, single_head_effects
from experiments.guan2020.features import feature_decisions, head_features
from experiments.guan2020.moves import type_moves
from experiments.guan2020.reading import reading, reading_caption, reading_rows
from experiments.guan2020.rows import (
    ablation_decision_rows,
    beside,
    control_quotes,
    decision_rows,
    mass_quotes,
    naming_rows,
    paper_shares,
    paper_stabilities,
    relabelled,
    share_rows,
    stability_quotes,
    type_effects,
)
from experiments.guan2020.subjects import QUESTIONS, over_subjects, reader_of, subjects
from experiments.guan2020.tables import ROWS, with_paper
from experiments.guan2020.types import cluster_number, head_types, type_stability
from experiments.guan2020.wall import unpacked, wall_maps

__all__ = [
    "QUESTIONS",
    "ROWS",
    "ablation_decision_rows",
    "ablation_decisions",
    "ablations",
    "beside",
    "cluster_number",
    "control_answers",
    "control_quotes",
    "decision_rows",
    "feature_decisions",
    "head_features",
    "head_types",
    "mass_quotes",
    "naming_rows",
    "over_subjects",
    "paper_shares",
    "paper_stabilities",
    "reader_of",
    "reading",
    "reading_caption",
    "reading_rows",
    "relabelled",
    "share_rows",
    "single_head_effects",
    "stability_quotes",
    "subjects",
    "type_answers",
    "type_effects",
    "type_moves",
    "type_stability",
    "unpacked",
    "wall_maps",
    "with_paper",
]
