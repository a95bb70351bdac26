"""What none of the papers has: four vocabularies for the same heads of the same model.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/agreement.yaml ask for, and plain facts.
"""

from experiments.agreement.effects import head_gradients, question_effects, task_effects
from experiments.agreement.folklore import saying_rows, sayings
from experiments.agreement.forms import (
    form_and_kind,
    form_caption,
    form_rows,
    input_lengths,
)
from experiments.agreement.importance import (
    effect_reliability,
    forecasts,
    head_importance,
    importance_agreement,
)
from experiments.agreement.pairs import confusion_wall, label_agreement, question_agreement
from experiments.agreement.plainwords import plain_words
from experiments.agreement.rows import (
    MEASURE_NAMES,
    SHORT,
    agreement_quotes,
    facts_of,
    forecast_caption,
    forecast_rows,
    importance_quotes,
    label_counts,
    loss_reliability,
    loss_width,
    measure_table,
    model_caption,
    model_rows,
    odd_rows,
    question_caption,
    question_rows,
    reliability_caption,
    reliability_rows,
    saying_caption,
    stability_caption,
    stability_quotes,
    stability_rows,
    told,
    twin_quotes,
)
from experiments.agreement.sightings import head_numbers, head_roles
from experiments.agreement.skills import best_relation, head_coreference, head_relations
from experiments.agreement.stability import TWIN, label_stability, model_agreement
from experiments.agreement.vocabularies import NAMES, head_labels
from experiments.clark2019.distances import divergences
from experiments.guan2020.models import QUESTIONS, subjects
from experiments.kovaleva2019 import disabled_answers, labels_digest, map_cosines
from experiments.shared.taskplans import over_tasks, task_plans

__all__ = [
    "MEASURE_NAMES",
    "NAMES",
    "QUESTIONS",
    "SHORT",
    "TWIN",
    "agreement_quotes",
    "best_relation",
    "confusion_wall",
    "disabled_answers",
    "divergences",
    "effect_reliability",
    "facts_of",
    "forecast_caption",
    "forecast_rows",
    "forecasts",
    "form_and_kind",
    "form_caption",
    "form_rows",
    "head_coreference",
    "head_gradients",
    "head_importance",
    "head_labels",
    "head_numbers",
    "head_relations",
    "head_roles",
    "importance_agreement",
    "importance_quotes",
    "input_lengths",
    "label_agreement",
    "label_counts",
    "label_stability",
    "labels_digest",
    "loss_reliability",
    "loss_width",
    "map_cosines",
    "measure_table",
    "model_agreement",
    "model_caption",
    "model_rows",
    "odd_rows",
    "over_tasks",
    "plain_words",
    "question_agreement",
    "question_caption",
    "question_effects",
    "question_rows",
    "reliability_caption",
    "reliability_rows",
    "saying_caption",
    "saying_rows",
    "sayings",
    "stability_caption",
    "stability_quotes",
    "stability_rows",
    "subjects",
    "task_effects",
    "task_plans",
    "told",
    "twin_quotes",
]
