"""The experiments of Pande et al. 2021, "The heads hypothesis": what each measures and finds.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/pande2021.yaml ask for, and plain facts.
"""

from experiments.pande2021.beside import authors_beside
from experiments.pande2021.disagreements import disagreements, threshold_curves
from experiments.pande2021.draws import bias_changes, number_draws
from experiments.pande2021.newroles import NEW, new_sieves
from experiments.pande2021.overview import changes_overview, numbers_overview
from experiments.pande2021.portraits import sieve_portraits
from experiments.pande2021.rows import (
    beside_correlations,
    block_quotes,
    ceiling_rows,
    change_rows,
    control_quotes,
    curve_quotes,
    effect_rows,
    example_rows,
    first_layer_quotes,
    fullest,
    judged_roles,
    layer_change_rows,
    new_role_rows,
    overview_quotes,
    spearman_inputs,
    spread_rows,
)
from experiments.pande2021.scoring import (
    decisions,
    random_heads,
    role_moments,
    score_examples,
    score_spread,
)
from experiments.pande2021.tuning import tuning, tuning_caption, tuning_overview, tuning_rows
from experiments.pande2021.twins import delimiter_twins, twin_quotes
from experiments.shared.taskplans import Plan, over_tasks, task_plans, tuned_model

__all__ = [
    "NEW",
    "Plan",
    "authors_beside",
    "beside_correlations",
    "bias_changes",
    "block_quotes",
    "ceiling_rows",
    "change_rows",
    "changes_overview",
    "control_quotes",
    "curve_quotes",
    "decisions",
    "delimiter_twins",
    "disagreements",
    "effect_rows",
    "example_rows",
    "first_layer_quotes",
    "fullest",
    "judged_roles",
    "layer_change_rows",
    "new_role_rows",
    "new_sieves",
    "number_draws",
    "numbers_overview",
    "over_tasks",
    "overview_quotes",
    "random_heads",
    "role_moments",
    "score_examples",
    "score_spread",
    "sieve_portraits",
    "spearman_inputs",
    "spread_rows",
    "task_plans",
    "threshold_curves",
    "tuned_model",
    "tuning",
    "tuning_caption",
    "tuning_overview",
    "tuning_rows",
    "twin_quotes",
]
