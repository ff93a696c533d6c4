"""Sizes at which methods change: where there are very many nodes, only the largest scores of a document are kept."""

# Above this many nodes, documents x nodes would fill the memory.
MANY_NODES = 20_000
# Scores, or terminal nodes, of a document that are kept then.
KEPT_SCORES = 100
# Scores that are computed at once: no block of documents x nodes is larger.
BLOCK_SCORES = 1 << 22
