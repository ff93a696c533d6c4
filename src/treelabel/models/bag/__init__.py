"""Vectors of words, summed, trained with any loss."""
