"""The experiments of Kovaleva et al. 2019, "Revealing the dark secrets of BERT".

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/kovaleva2019.yaml ask for, and plain facts.
"""
