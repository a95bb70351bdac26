"""The experiments of Clark et al. 2019, "What Does BERT Look At?", by sections of the paper.

An experiment takes corpora, an encoder, or tables of earlier ones, and returns what it found: a
tidy table, the numbers that the claims in papers/clark2019.yaml ask for, and plain facts.
"""
