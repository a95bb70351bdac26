"""The experiments of Guan et al. 2020, "How far does BERT look at", and the figures only it draws.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/guan2020.yaml ask for, and plain facts.
"""
