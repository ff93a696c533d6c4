"""Losses over a hierarchy: one file per loss, with its formula, its gradient and its map from logits to probabilities.

`losses.torch` and `losses.compiled` hold faster forms of some of them, which say the same.
"""
