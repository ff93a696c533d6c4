"""Losses over a hierarchy: one file per loss, a torch module with its formula and its map to node probabilities.

`registry` says what there is and what labels each loss takes, without torch. Autograd differentiates.
"""
