"""Questions made from Wikipedia: the corpora `wiki-questions:train` and `wiki-questions:dev`."""
