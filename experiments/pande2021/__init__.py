"""The experiments of Pande et al. 2021, "The heads hypothesis", and the figures only they draw.

Every experiment takes an encoder and corpora, or tables of earlier ones, and returns what it found:
a tidy table, the numbers that the claims in papers/pande2021.yaml ask for, and plain facts.
"""
