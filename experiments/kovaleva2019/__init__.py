"""The experiments of Kovaleva et al. 2019, "Revealing the dark secrets of BERT".

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/kovaleva2019.yaml ask for, and plain facts.
"""

from experiments.kovaleva2019.cosines import cosine_overview, layer_draws, map_cosines
from experiments.kovaleva2019.disable import (
    disabled_answers,
    disabling_effects,
    disabling_overview,
    frame_heads_disabled,
    strongest,
)
from experiments.kovaleva2019.disagreements import (
    both_cosines,
    missing_as_zero,
    negation_by_letters,
)
from experiments.kovaleva2019.frames import (
    authors_map,
    beside_authors,
    chosen_frames,
    filtered,
    frame_scores,
)
from experiments.kovaleva2019.maps import (
    label_counts,
    labels_digest,
    pattern_counts,
    pattern_network,
    pattern_overview,
)
from experiments.kovaleva2019.portraits import example_pictures, frame_portraits, pictures_of
from experiments.kovaleva2019.repeats import copied_words, repeats_overview
from experiments.kovaleva2019.rows import (
    beside,
    changes,
    confusion_rows,
    direction_rows,
    disabled,
    disabling_quotes,
    disabling_table,
    first_of_pairs,
    frame_loss_table,
    frame_quotes,
    gainer_table,
    heterogeneous,
    kind_grids,
    larger_rows,
    layer_shares,
    link_table,
    missing_rows,
    negation_table,
    numbers_of,
    paper_starts,
    profiles,
    score_rows,
    score_table,
    start_rows,
    task_shares,
)
from experiments.kovaleva2019.tokens import cls_attention, cls_overview, link_overview, word_links
from experiments.kovaleva2019.tuning import STARTS, start_answers, starts_overview
from experiments.kovaleva2019.words import stripe_maps, stripe_overview
from experiments.shared.taskplans import over_tasks, task_plans

__all__ = [
    "STARTS",
    "authors_map",
    "beside",
    "beside_authors",
    "both_cosines",
    "changes",
    "chosen_frames",
    "cls_attention",
    "cls_overview",
    "confusion_rows",
    "copied_words",
    "cosine_overview",
    "direction_rows",
    "disabled",
    "disabled_answers",
    "disabling_effects",
    "disabling_overview",
    "disabling_quotes",
    "disabling_table",
    "example_pictures",
    "filtered",
    "first_of_pairs",
    "frame_heads_disabled",
    "frame_loss_table",
    "frame_portraits",
    "frame_quotes",
    "frame_scores",
    "gainer_table",
    "heterogeneous",
    "kind_grids",
    "label_counts",
    "labels_digest",
    "larger_rows",
    "layer_draws",
    "layer_shares",
    "link_overview",
    "link_table",
    "map_cosines",
    "missing_as_zero",
    "missing_rows",
    "negation_by_letters",
    "negation_table",
    "numbers_of",
    "over_tasks",
    "paper_starts",
    "pattern_counts",
    "pattern_network",
    "pattern_overview",
    "pictures_of",
    "profiles",
    "repeats_overview",
    "score_rows",
    "score_table",
    "start_answers",
    "start_rows",
    "starts_overview",
    "stripe_maps",
    "stripe_overview",
    "strongest",
    "task_plans",
    "task_shares",
    "word_links",
]
