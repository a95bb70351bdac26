"""What none of the papers has: four vocabularies for the same heads of the same model.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/agreement.yaml ask for, and plain facts.
"""
