"""Losses over a hierarchy: one file a family, each with its gradient and its map from logits to probabilities."""
