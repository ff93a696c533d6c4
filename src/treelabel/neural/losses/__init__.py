"""Losses over a hierarchy: one file per loss, with its formula, its gradient and its map from logits to probabilities.

`neural.losses.torch` and `neural.losses.compiled` hold faster forms of some of them, which compute the same numbers.
"""
