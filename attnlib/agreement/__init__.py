"""What none of the papers has: four vocabularies for the same heads of the same model.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/agreement.yaml ask for, and plain facts.
"""

from attnlib.agreement.effects import head_gradients, question_effects, task_effects
from attnlib.agreement.importance import (
    effect_reliability,
    forecasts,
    head_importance,
    importance_agreement,
)
from attnlib.agreement.pairs import confusion_wall, label_agreement, question_agreement
from attnlib.agreement.sightings import head_numbers, head_roles
from attnlib.agreement.skills import best_relation, head_coreference, head_relations
from attnlib.agreement.stability import TWIN, label_stability, model_agreement
from attnlib.agreement.vocabularies import NAMES, head_labels

__all__ = [
    "NAMES",
    "TWIN",
    "best_relation",
    "confusion_wall",
    "effect_reliability",
    "forecasts",
    "head_coreference",
    "head_gradients",
    "head_importance",
    "head_labels",
    "head_numbers",
    "head_relations",
    "head_roles",
    "importance_agreement",
    "label_agreement",
    "label_stability",
    "model_agreement",
    "question_agreement",
    "question_effects",
    "task_effects",
]
