"""Held-out documents: folds, out-of-fold scores, evidence, and the choices that are made by them."""
