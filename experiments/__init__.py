"""What the papers' notebooks call. Importing it adds the corpora that are made here to the list."""

from experiments.shared.questions import corpus

corpus.register()
